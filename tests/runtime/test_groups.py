"""On a real GPU every kernel of a network has groups of at least a warp, or as many work-items as there is work for."""

from __future__ import annotations

import pytest

from tests.runtime.schedule_cases import idle
from tvm_codl.build.launches import Launch
from tvm_codl.frontend.load import load_model
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.gpu import Kind, usual
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.measure.libraries import build_batch
from tvm_codl.measure.probe import Probe
from tvm_codl.records.workload import Workload
from tvm_codl.relay.pipeline import extract


@pytest.mark.parametrize("kind", ["valhall", "local"])
@pytest.mark.parametrize(
    "name",
    [
        "small",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("mobilenet_v2", "resnet18", "squeezenet", "style_transfer", "ppocr_cls", "ppocr_rec")
        ),
    ],
)
def test_every_kernel_of_a_network_fills_its_groups(name: str, kind: Kind) -> None:
    graph, weights, _ = extract(load_model(f"zoo:{name}").module)
    cpu, gpu = cpu_target(lanes=4), usual(kind)
    workloads = {Workload.of(operator, graph).key: operator.id for operator in graph.operators}
    probes = [Probe(operator, "gpu", key) for key, operator in workloads.items()]
    with scheduled():
        library = build_batch(graph, weights, probes, cpu, gpu_target(cpu, gpu))
    assert sum(len(launches) for launches in library.launches) >= len(probes) // 2
    wrong = {
        probe.key: [launch for launch in launches if idle(launch, gpu) or launch.work_group > gpu.max_group]
        for probe, launches in zip(probes, library.launches, strict=True)
    }
    assert not {workload: launches for workload, launches in wrong.items() if launches}


@pytest.mark.parametrize(("launch", "expected"), [((64, 9), False), ((7, 1), False), ((7, 2), True), ((16, 2), False)])
def test_the_rule(launch: tuple[int, int], expected: bool) -> None:
    group, groups = launch
    assert idle(Launch(group, 0, groups), usual("valhall")) is expected
