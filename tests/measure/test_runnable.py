"""What one processor's compiler rejects goes to the other; what both reject is named, all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.measure.null_phone import PROFILE, NullToolchain
from tests.unit.plan.networks import Network
from tests.unit.plan.test_search import legal
from tvm_codl.build.pool import Outcome
from tvm_codl.errors import DeviceError, KernelRejected, UserError, WorkplaceError
from tvm_codl.measure import runnable as module
from tvm_codl.measure.probe import Probe
from tvm_codl.measure.runnable import runnable, without_float16
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator, uniform_plan
from tvm_codl.relay.prepared import Prepared

SPLIT = Placement("split", "height", 3)
CPU, GPU = Placement("cpu"), Placement("gpu")


class Compiler:
    """Rejects the operators of ``rejects`` on the processors there; ``late``: only as the phone opens the library."""

    def __init__(self, rejects: set[tuple[int, str]], late: bool = False) -> None:
        made = Network(1, 8, 8, 16)
        made.conv(made.conv(made.conv(0, 8), 24), 32)
        self.graph, self.rejects, self.late = made.graph(), rejects, late
        self.prepared = Prepared(SimpleNamespace(name="net"), self.graph, {}, None, legal(self.graph))  # type: ignore[arg-type]
        self.said: list[str] = []
        self.groups: list[list[Probe]] = []

    def plan(self, *placements: Placement) -> Plan:
        lines = (PlannedOperator(o.id, o.name, p) for o, p in zip(self.graph.operators, placements, strict=True))
        return Plan("net", "null phone", tuple(lines))

    def attempt(self, plans: dict[str, Plan]) -> None:
        for plan in plans.values():
            for line in plan.operators:
                parts = ("cpu", "gpu") if line.placement.on == "split" else (line.placement.on,)
                if any((line.operator, on) in self.rejects for on in parts):
                    raise (KernelRejected if self.late else UserError)("the library is not built")

    def build_libraries(self, *args: Any) -> list[Outcome]:
        groups: Sequence[Sequence[Probe]] = args[-1]
        self.groups += [list(group) for group in groups]
        bad = [any((p.operator, p.processor) in self.rejects for p in group) for group in groups]
        paths = [Path("bad.so" if each else "good.so") for each in bad]
        return [
            Outcome(path if self.late or not each else None, "no such function")
            for path, each in zip(paths, bad, strict=True)
        ]

    def open(self, path: Path) -> None:
        if path.stem == "bad":
            raise KernelRejected("the device cannot run this library", "no such function")

    def run(self, monkeypatch: pytest.MonkeyPatch, *placements: Placement, **profile: Any) -> tuple[Placement, ...]:
        monkeypatch.setattr(module, "build_libraries", self.build_libraries)
        facts = msgspec.structs.replace(PROFILE, **{"float16": True, **profile})
        plans = {"": self.plan(*placements)}
        tools: Any = NullToolchain()
        return runnable(self.prepared, plans, facts, tools, self.said.append, self.attempt, self.open)[""].placements


@pytest.mark.parametrize("late", [False, True])
def test_what_one_processor_rejects_goes_to_the_other(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    compiler = Compiler({(0, "gpu"), (2, "cpu")}, late)
    assert compiler.run(monkeypatch, SPLIT, SPLIT, CPU) == (CPU, SPLIT, GPU)
    assert "conv2d" in compiler.said[-1] and "no such function" in compiler.said[-1]


def test_a_plan_that_compiles_stays_and_nothing_is_compiled_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler({(0, "gpu")})
    assert compiler.run(monkeypatch, CPU, SPLIT, GPU) == (CPU, SPLIT, GPU)
    assert not compiler.groups and not compiler.said


def test_all_operators_that_compile_for_neither_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler({(0, "gpu"), (0, "cpu"), (2, "cpu"), (2, "gpu")})
    with pytest.raises(UserError) as raised:
        compiler.run(monkeypatch, GPU, GPU, CPU)
    assert all(compiler.graph.operators[id].name in raised.value.evidence for id in (0, 2))
    assert compiler.graph.operators[1].name not in raised.value.evidence


def test_other_errors_are_not_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(set())

    def fail(error: Exception) -> Any:
        def attempt(plans: dict[str, Plan]) -> None:
            raise error

        return attempt

    for error in (WorkplaceError("no compiler"), DeviceError("the phone is gone")):
        compiler.attempt = fail(error)  # type: ignore[method-assign]
        with pytest.raises(type(error)):
            compiler.run(monkeypatch, CPU, CPU, CPU)
        assert not compiler.groups
    failure = UserError("the plan is for another network")
    compiler.attempt = fail(failure)  # type: ignore[method-assign]
    with pytest.raises(UserError) as raised:
        compiler.run(monkeypatch, CPU, CPU, CPU)
    assert raised.value is failure and compiler.groups


def test_float16_goes_to_the_cpu_where_the_gpu_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(set())
    graph = compiler.graph
    assert not without_float16(graph)
    tensors = tuple(
        msgspec.structs.replace(t, dtype="float16") if t.id == graph.outputs[0] else t for t in graph.tensors
    )
    half = msgspec.structs.replace(graph, tensors=tensors)
    assert set(without_float16(half)) == {(2, "gpu")}
    object.__setattr__(compiler.prepared, "graph", half)
    assert compiler.run(monkeypatch, GPU, SPLIT, SPLIT, float16=False) == (GPU, SPLIT, CPU)
    assert len(compiler.said) == 1
    assert compiler.run(monkeypatch, GPU, SPLIT, SPLIT, float16=True) == (GPU, SPLIT, SPLIT)
    # Of a phone that is not there nothing is known.
    assert compiler.run(monkeypatch, GPU, SPLIT, SPLIT, float16=False, cpu_cores=()) == (GPU, SPLIT, SPLIT)


def test_equal_operators_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Network(1, 8, 8, 16)
    made.conv(made.conv(made.conv(0, 16), 16), 16)
    compiler = Compiler({(id, "gpu") for id in range(3)})
    compiler.graph = made.graph()
    compiler.prepared = Prepared(SimpleNamespace(name="net"), compiler.graph, {}, None, legal(compiler.graph))  # type: ignore[arg-type]
    placed = uniform_plan(compiler.graph, "gpu").placements
    assert compiler.run(monkeypatch, *placed) == (CPU,) * 3
    assert [len(group) for group in compiler.groups] == [1, 1]
