"""A variant's words follow from the device's facts, as the kernels do."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from tests.unit.plan.networks import Network
from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.schedules import Scheduler
from tvm_codl.cost.table import table
from tvm_codl.kernels.gpu import KINDS, Kind, usual
from tvm_codl.kernels.reuse import ESTIMATED, MEASURED, TRANSFERRED, Tunings
from tvm_codl.kernels.variant import Cut, Task, variant_of
from tvm_codl.records.workload import Workload


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", get_args(Task))
def test_every_kind_of_gpu_has_words(kind: Kind, task: Task) -> None:
    gpu = usual(kind)
    variant = variant_of(gpu, Cut(task, 4, 2, 4))
    assert variant.name and variant.words
    assert (str(gpu.group) in variant.words) == (kind != "played")
    assert ("CPU" in variant.words) == (kind == "played")


def test_a_tile_and_who_chose_it_are_told() -> None:
    mali = usual("valhall")
    words = {
        source: variant_of(mali, Cut("tile", 4, 2, 4, source)).words for source in (ESTIMATED, TRANSFERRED, MEASURED)
    }
    assert all("4 x 2 tile" in each and "Mali" in each for each in words.values())
    assert len(set(words.values())) == 3
    assert "estimated" in words[ESTIMATED] and "tuned" in words[MEASURED]


def test_the_words_are_of_the_kernel_that_the_cost_model_sees() -> None:
    network = Network(1, 24, 24, 16)
    network.opaque(network.conv(0, 32))
    graph = network.graph()
    rows = table([Workload.of(operator, graph) for operator in graph.operators])
    gpu = usual("valhall")
    scheduler = Scheduler(Tunings(), "gpu", DeviceFacts(gpu=gpu))
    found, (conv, opaque) = scheduler.schedules(rows), scheduler.variants(rows)
    assert np.all(found.source == ESTIMATED)
    assert f"{found.columns[0]} x {found.blocks[0]} tile" in conv.words and opaque.name == "plain"
