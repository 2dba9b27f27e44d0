"""What ``bench`` leaves out, and what it says: on a phone and with libraries that are none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from tests.measure.null_phone import PROFILE
from tests.unit.plan.networks import Network
from tests.unit.plan.test_search import legal
from tvm_codl.build.pool import Outcome
from tvm_codl.errors import UserError
from tvm_codl.measure import bench as benches
from tvm_codl.measure.bench import BenchReport, Operators, bench, unable
from tvm_codl.measure.context import Context
from tvm_codl.measure.interleave import Race, race
from tvm_codl.measure.probe import Probe, whole_probes
from tvm_codl.plan.files import load_plan
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator
from tvm_codl.records.record import ErrorNo, Piece, Record
from tvm_codl.records.settings import Settings
from tvm_codl.relay.prepared import Prepared
from tvm_codl.runtime.comodule import Watched

PHONE = SimpleNamespace(profile=PROFILE)
#: Milliseconds of each library.
MS = {"cpu": 4.0, "gpu": 6.0, "coexec": 3.0}
PLAN = Plan(
    "net",
    "null phone",
    (PlannedOperator(0, "conv2d_0", Placement("gpu")), PlannedOperator(1, "conv2d_1", Placement("cpu"))),
    predicted_ms=2.5,
)


def network() -> Prepared:
    made = Network(1, 8, 8, 16)
    made.conv(made.conv(0, 8), 24)
    graph = made.graph()
    model = SimpleNamespace(name="net", sample_inputs=dict, quanta=(), sample_answers=[np.zeros((1, 4), "float32")])
    return Prepared(model, graph, {}, None, legal(graph))  # type: ignore[arg-type]


def record(probe: Probe, error: str = "", number: int = 0) -> Record:
    times = () if error or number else (2.0,)
    return Record(
        probe.key, Piece("conv2d"), probe.processor, "null phone", "b", times, 1.0, error=error, error_no=number
    )


class Measurer:
    """Every operator takes 2 ms; those in ``broken``, by their number and processor, do not run."""

    def __init__(self, *broken: tuple[int, str]) -> None:
        self.broken = broken
        self.known: list[Record] = []
        self.asked: list[Probe] = []

    def newest_records(self) -> dict[tuple[str, str], Record]:
        return {(r.workload, r.processor): r for r in self.known}

    def measure(self, probes: Sequence[Probe]) -> list[Record]:
        self.asked += probes
        return [record(p, "out of registers" if (p.operator, p.processor) in self.broken else "") for p in probes]

    def tell_drift(self) -> None:
        pass

    def libraries(self, probes: Sequence[Probe]) -> list[tuple[Sequence[Probe], Outcome]]:
        assert not {(p.operator, p.processor) for p in probes} & set(self.broken)
        return [([probe], Outcome(Path("one.so"))) for probe in probes]


class Library:
    """Takes ``ms`` for a run; ``waited_ms`` of them its threads wait for their cores."""

    copied_bytes, sharing = 0, "map"

    def __init__(self, ms: float = 1.0, waited_ms: float = 0.0) -> None:
        self.ms, self.waited_ms = ms, waited_ms

    def run(self, inputs: Any) -> list[np.ndarray]:
        return [np.zeros((1, 4), "float32")]

    def timeline(self) -> list[Any]:
        return []

    def watch(self, number: int, repeat: int) -> Watched:
        return Watched((self.ms,) * repeat, (self.waited_ms,) * (repeat - 1) + (0.0,))

    def time_region(self, index: int, repeat: int, min_ms: float, network_bytes: int) -> list[float]:
        return [2.0] * repeat


def with_measurer(monkeypatch: pytest.MonkeyPatch, *broken: tuple[int, str]) -> None:
    monkeypatch.setattr(benches.Measurer, "of", lambda *_: Measurer(*broken))
    monkeypatch.setattr(benches, "open_remote", lambda *_: Library())


def report(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *broken: tuple[int, str],
    waited_ms: float = 0.0,
    built: bool = True,
    **options: Any,
) -> tuple[BenchReport, list[str]]:
    """The report of a network of which some operators do not run, and what was said; its libraries are ``built``, or were
    there."""
    with_measurer(monkeypatch, *broken)
    said: list[str] = []

    def libraries(prepared: Any, plans: Any, *_: Any) -> dict[str, Path]:
        paths = {name: folder / f"{name}.so" for name in plans}
        for path in paths.values():
            path.touch()
            if not built:
                os.utime(path, (0, 0))
        return paths

    for changed, double in {
        "make_plan": lambda *_, **__: PLAN,
        "libraries_for": libraries,
        "open_runnable": lambda prepared, plans, *_: (
            dict(plans),
            {name: Library(MS[name], waited_ms) for name in plans},
        ),
        "race": lambda modules, others, usual: Race(race(modules, others).turns, patience_s=0.0, usual=usual),
        "calm_down": lambda: said.append("calm"),
        "overlap": lambda _: 0.5,
        "cache_dir": lambda: folder / "cache",
    }.items():
        monkeypatch.setattr(benches, changed, double)
    context: Any = Context(PHONE, None, None, said.append)  # type: ignore[arg-type]
    return bench(network(), context, repeat=2, **options), said


def test_who_does_not_run_an_operator_is_named_with_the_first_of_them_and_its_error() -> None:
    graph = network().graph
    first, second = (
        [p for p in whole_probes(graph) if p.operator == number and p.processor == "gpu"] for number in (0, 1)
    )
    assert unable(graph, []) == {}
    assert unable(graph, [record(*second, "out of registers")]) == {
        "gpu": "operator 1 (conv2d_1) does not run there: out of registers"
    }
    both = [record(*second, "out of registers"), record(*first, number=ErrorNo.BUILD_TIMEOUT)]
    assert unable(graph, both) == {"gpu": "operator 0 (conv2d_0) does not run there: BUILD_TIMEOUT"}


def test_an_operator_that_one_processor_does_not_run_is_ideally_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for broken, ideal in (((), 2.0), (((1, "gpu"),), 3.0), (((1, "gpu"), (0, "cpu")), 4.0)):
        with_measurer(monkeypatch, *broken)
        operators = Operators(network(), Context(PHONE, None, None))  # type: ignore[arg-type]
        operators.measure()
        assert operators.ideal_ms() == pytest.approx(ideal)
        assert set(operators.unable) == {on for _, on in broken}
        on_record = Operators(network(), Context(PHONE, None, None), anew=False)  # type: ignore[arg-type]
        on_record.measure()
        assert not on_record.modules and on_record.ideal_ms() == pytest.approx(ideal)


class Model:
    """Predicts 6 ms for every operator."""

    def predict(self, workloads: Sequence[Any], processor: str) -> np.ndarray:
        return np.full(len(workloads), 6.0)


@pytest.mark.parametrize(
    ("known", "asked", "ideal"),
    [
        ([(0, "cpu"), (1, "cpu"), (0, "gpu")], 0, 1 + 1.5),  # one of the GPU's is predicted
        ([(0, "cpu"), (0, "gpu")], 0, 1 + 3),  # one of each
        ([(0, "cpu"), (1, "cpu")], 4, 2.0),  # nothing is known of the GPU
        ([(0, "gpu"), (1, "gpu")], 4, 2.0),
    ],
)
def test_operators_that_no_plan_needed_are_predicted_where_that_can_be_done(
    monkeypatch: pytest.MonkeyPatch, known: list[tuple[int, str]], asked: int, ideal: float
) -> None:
    measurer = Measurer()
    measurer.known = [record(p) for p in whole_probes(network().graph) if (p.operator, p.processor) in known]
    monkeypatch.setattr(benches.Measurer, "of", lambda *_: measurer)
    monkeypatch.setattr(benches, "fit_once", lambda *_: Model())
    store = SimpleNamespace(query=lambda **_: measurer.known)
    tools = SimpleNamespace(kernel_id="b", records=())
    operators = Operators(network(), Context(PHONE, store, tools), anew=False)  # type: ignore[arg-type]
    assert len(measurer.asked) == asked
    assert operators.ideal_ms() == pytest.approx(ideal)


def test_a_network_that_runs_everywhere_is_compared_with_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, said = report(monkeypatch, tmp_path)
    assert found.cpu_ms is not None and found.gpu_ms is not None
    assert (found.cpu_ms.median, found.gpu_ms.median, found.coexec_ms.median) == (4.0, 6.0, 3.0)
    assert (found.best_single, found.best_single_ms, found.speedup) == ("cpu", 4.0, pytest.approx(4 / 3))
    assert found.ratios == "speedup 1.33, efficiency 0.67, overlap 0.50"
    assert not any("alone" in line for line in said)


def test_after_building_it_waits_until_the_phone_is_calm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "calm" in report(monkeypatch, tmp_path)[1]
    assert "calm" not in report(monkeypatch, tmp_path, built=False)[1]


def test_a_race_that_was_disturbed_is_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, said = report(monkeypatch, tmp_path, waited_ms=2.0)
    assert found.disturbed and found.ratios.startswith("disturbed: speedup 1.33")
    assert any(line.startswith("disturbed: only 0 of 2 rounds") for line in said)
    found, said = report(monkeypatch, tmp_path)
    assert not found.disturbed and found.discarded == 0 and not any(line.startswith("disturbed") for line in said)


def test_a_processor_that_does_not_run_an_operator_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, said = report(monkeypatch, tmp_path, (1, "cpu"))
    fields = msgspec.json.decode(msgspec.json.encode(found))
    assert fields["cpu_ms"] is None and fields["gpu_ms"]["median"] == 6.0
    assert (fields["best_single"], fields["best_single_ms"], fields["speedup"]) == ("gpu", 6.0, 2.0)
    assert "not run on the cpu alone: operator 1 (conv2d_1) does not run there: out of registers" in said


def test_where_neither_runs_all_operators_there_is_nothing_to_compare_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, said = report(monkeypatch, tmp_path, (1, "gpu"), (0, "cpu"))
    fields = msgspec.json.decode(msgspec.json.encode(found))
    for name in ("cpu_ms", "gpu_ms", "best_single", "best_single_ms", "speedup"):
        assert fields[name] is None, name
    assert fields["coexec_ms"]["median"] == 3.0
    assert found.ratios == "no processor alone to compare with, efficiency 1.33, overlap 0.50"
    assert sum("alone" in line for line in said) == 2


def test_the_plan_that_was_made_is_kept_and_its_path_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, said = report(monkeypatch, tmp_path)
    path = Path(found.plan)
    assert path.parent == tmp_path / "cache" / "plans"
    assert path.name.startswith("net.") and path.name.endswith(".plan.json")
    assert load_plan(path) == PLAN
    assert f"plan: {path}" in said
    found, _ = report(monkeypatch, tmp_path, plan_path=str(tmp_path / "mine.json"))
    assert found.plan == str(tmp_path / "mine.json")
    assert load_plan(found.plan) == PLAN


def test_a_plan_that_was_given_stays_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _ = report(monkeypatch, tmp_path, plan=PLAN, plan_path="by-hand.json")
    assert found.plan == "by-hand.json"
    assert not (tmp_path / "cache").exists()


def test_settings_that_the_phone_cannot_do_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="9 CPU threads are more than there are cores"):
        report(monkeypatch, tmp_path, plan=replace(PLAN, settings=Settings(cpu_threads=9)))
