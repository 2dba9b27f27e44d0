"""The schedule that the cost model counts with is the one that the build takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.frontend.quantised_models import quantised
from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.schedules import Scheduler, Schedules
from tvm_codl.cost.table import table
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.zoo import small
from tvm_codl.graph.split import axes
from tvm_codl.kernels.dispatch import SOURCES, scheduled
from tvm_codl.kernels.gpu import Kind, usual
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.kernels.reuse import CONV2D, INTEGER_CONV2D, Tunings, shipped
from tvm_codl.kernels.schedules import conv2d, integer_conv2d, phone_conv2d
from tvm_codl.kernels.target import dot_on
from tvm_codl.kernels.tiles.register_tiles import Tiles
from tvm_codl.measure.libraries import build_batch
from tvm_codl.measure.probe import Probe
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload
from tvm_codl.relay.pipeline import extract

pytestmark = pytest.mark.usefixtures("opencl")


@pytest.mark.parametrize("records", [True, False], ids=["shipped records", "no records"])
@pytest.mark.parametrize(
    ("processor", "kind"), [("cpu", "played"), ("gpu", "played"), ("gpu", "valhall"), ("gpu", "adreno")]
)
@pytest.mark.parametrize("integers", [False, True], ids=["float32", "int8"])
def test_pieces_run_with_the_tiles_that_were_predicted(
    processor: Processor, kind: Kind, integers: bool, records: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Tiles] = []
    real = conv2d.tiles_of

    def noted(*args: Any) -> Tiles:
        taken.append(real(*args))
        return taken[-1]

    for module in (conv2d, phone_conv2d, integer_conv2d):
        monkeypatch.setattr(module, "tiles_of", noted)
    path = str(quantised(small.build(), tmp_path, "QOperator")) if integers else "zoo:small"
    graph, weights, _ = extract(load_model(path).module)
    cpu = cpu_target("skylake-avx512")  # compiled, not run
    facts_of_gpu = usual(kind, 16 if kind == "played" else 4)
    gpu = gpu_target(cpu, facts_of_gpu)
    device = DeviceFacts(gpu=facts_of_gpu, cpu_dot=dot_on("uint8", cpu))
    scheduler = Scheduler(shipped() if records else Tunings(), processor, device)
    compared = 0
    for operator in [o for o in graph.operators if o.kind == ("integer_conv2d" if integers else "conv2d")][:4]:
        # Cuts that leave whole vectors of channels, and ragged ones.
        for axis, share in (("", 1.0), ("height", 0.4), ("channels", 0.5), ("channels", 0.3)):
            along = axes(operator, graph).get(axis)
            if axis and along is None:
                continue
            hi = max(along.granule, int(along.extent * share) // along.granule * along.granule) if along else 0
            workload = Workload.of(operator, graph, axis, 0, hi) if axis else Workload.of(operator, graph)
            taken.clear()
            with scheduled(shipped=records) as context:
                build_batch(graph, weights, [Probe(operator.id, processor, workload.key, axis, 0, hi)], cpu, gpu)
            found = scheduler.schedules(table([workload]))
            asked = {how for (_, task), how in context.seen.items() if task[0] in (CONV2D, INTEGER_CONV2D)}
            if not taken or int(found.task[0]) == 0:
                assert not taken and not asked, workload.key
                continue
            assert {SOURCES.index(how) for how in asked} == {int(found.source[0])}, workload.key
            assert predicted(found) == {facts(tiles) for tiles in taken}, workload.key
            compared += 1
    assert compared >= 8


def predicted(found: Schedules) -> set[tuple[int, ...]]:
    names = ("columns", "blocks", "unroll", "rows", "weights_first")
    return {tuple(int(getattr(found, name)[0]) for name in names)}


def facts(tiles: Tiles) -> tuple[int, ...]:
    return tiles.columns, tiles.blocks, tiles.unroll, tiles.rows, int(tiles.weights_first)
