"""Plans whose answers are wrong or change: found, blamed on an operator, recorded, never used, and looked for once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measure.null_phone import PROFILE, NullToolchain
from tests.unit.plan.networks import Network
from tests.unit.plan.test_search import legal
from tvm_codl.errors import CheckFailed
from tvm_codl.measure import answers, sound_plans
from tvm_codl.measure.answers import FEWEST, RUNS, find_fault
from tvm_codl.measure.checked_kernels import CheckedKernels, Fault
from tvm_codl.measure.context import Context
from tvm_codl.measure.halving import Validation
from tvm_codl.measure.sound_plans import Soundness, to_blame
from tvm_codl.measure.validation import without_faults
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator
from tvm_codl.records.record import ErrorNo
from tvm_codl.records.store import RecordStore
from tvm_codl.records.workload import Workload
from tvm_codl.relay.prepared import Prepared

WRONG, UNSTEADY = Fault(ErrorNo.GPU_WRONG, "far off"), Fault(ErrorNo.GPU_UNSTEADY, "now so, now so")


class Library:
    """Its answer is ``answer(run)``, runs counted from 1."""

    def __init__(self, answer: Callable[[int], float] = lambda run: 1.0) -> None:
        self.answer, self.runs = answer, 0

    def run(self, inputs: Any = None) -> list[np.ndarray]:
        self.runs += 1
        return [np.full((2, 3), self.answer(self.runs), "float32")]


RIGHT = [np.ones((2, 3), "float32")]


def test_right_answers_are_looked_at_fifty_times() -> None:
    library = Library()
    assert find_fault(library, {}, RIGHT) is None and library.runs == RUNS == 50  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "number", "runs"),
    [
        (lambda run: 1.1, ErrorNo.GPU_WRONG, 1),
        (lambda run: np.nan, ErrorNo.GPU_WRONG, 1),
        # So near that it is within the tolerance, and still another answer.
        (lambda run: 1.0 + 1e-6 * (run == 37), ErrorNo.GPU_UNSTEADY, 37),
    ],
)
def test_a_wrong_answer_and_one_that_changes(answer: Callable[[int], float], number: int, runs: int) -> None:
    library = Library(answer)
    fault = find_fault(library, {}, RIGHT)  # type: ignore[arg-type]
    assert fault is not None and fault.error_no == number and library.runs == runs


def test_a_slow_network_runs_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "SECONDS", 0.0)
    library = Library()
    assert find_fault(library, {}, RIGHT) is None and library.runs == FEWEST  # type: ignore[arg-type]


@given(st.sets(st.integers(0, 40), min_size=1), st.data())
def test_the_operator_to_blame_is_found_in_few_tries(operators: set[int], data: st.DataObject) -> None:
    ordered, tries = sorted(operators), []
    guilty = data.draw(st.sets(st.sampled_from(ordered)))

    def test(kept: Sequence[int]) -> Fault | None:
        tries.append(kept)
        return WRONG if guilty & set(kept) else None

    found = to_blame(ordered, test)
    assert (found is None) == (not guilty)
    if found is not None:
        assert found[0] in guilty and found[1] == WRONG
    assert len(tries) <= 2 * len(ordered).bit_length() + 1


def test_what_was_checked_is_remembered_for_its_phone(tmp_path: Path) -> None:
    known = CheckedKernels(PROFILE, tmp_path)
    known.keep_right(["a", "b"])
    known.keep_fault("library", UNSTEADY)
    (file,) = tmp_path.iterdir()
    with file.open("a") as end:
        end.write('{"kernels": ["half')
    again = CheckedKernels(PROFILE, tmp_path)
    assert again.knows({"a"}) and again.knows(["a", "b"]) and not again.knows(["a", "c"])
    assert again.faults == {"library": UNSTEADY}
    other = SimpleNamespace(name="other", gpu_name="none", gpu_version="")
    assert not CheckedKernels(other, tmp_path).knows({"a"})  # type: ignore[arg-type]


def test_the_next_best_plan_takes_the_place_of_one_with_a_fault() -> None:
    samples = {"ours": [1.0], "greedy": [1.5], "cpu": [3.0]}
    predicted = {"ours": 1.0, "greedy": 1.5, "cpu": 3.0}
    faults = {"ours": WRONG, "greedy": UNSTEADY}
    said: list[str] = []
    result = without_faults(Validation(samples, "ours"), predicted, faults.get, said.append)
    assert result.first == "cpu" and set(result.samples) == {"cpu"} and len(said) == 2
    with pytest.raises(CheckFailed):
        without_faults(Validation(samples, "ours"), predicted, lambda name: WRONG)
    assert without_faults(Validation(samples, "greedy"), predicted, {}.get).samples == samples


class Bench:
    """A network of three convolutions of which those in ``wrong`` have wrong answers on the GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, wrong: set[int]) -> None:
        made = Network(1, 8, 8, 16)
        made.conv(made.conv(made.conv(0, 8), 24), 8)
        self.graph, self.said, self.built = made.graph(), list[str](), 0
        model = SimpleNamespace(name="net", sample_inputs=dict, quanta=(), sample_answers=RIGHT)
        prepared = Prepared(model, self.graph, {}, None, legal(self.graph))  # type: ignore[arg-type]
        self.store = RecordStore(folder / "records.sqlite")
        phone = SimpleNamespace(profile=PROFILE)
        context = Context(phone, self.store, NullToolchain(), self.said.append)  # type: ignore[arg-type]

        def on_gpu(plan: Plan) -> set[int]:
            return {o.operator for o in plan.operators if o.placement.on != "cpu"}

        def libraries_for(_: Any, plans: dict[str, Plan], *rest: Any) -> dict[str, Path]:
            self.built += 1
            return {name: Path("-".join(map(str, sorted(on_gpu(plan)))) + ".so") for name, plan in plans.items()}

        def open_library(path: Path, _: Any) -> Library:
            return self.library({int(number) for number in path.stem.split("-")} & wrong)

        self.library = lambda bad: Library(lambda run: 2.0 if bad else 1.0)
        self.wrong, self.on_gpu = wrong, on_gpu
        for name, double in {
            "libraries_for": libraries_for,
            "open_library": open_library,
            "kernels_of": lambda path: frozenset(path.stem.split("-")),
            "CheckedKernels": lambda profile: CheckedKernels(profile, folder / "answers"),
        }.items():
            monkeypatch.setattr(sound_plans, name, double)
        self.soundness = Soundness(prepared, context)

    def plan(self, *placements: Placement) -> Plan:
        lines = (PlannedOperator(o.id, o.name, p) for o, p in zip(self.graph.operators, placements, strict=True))
        return Plan("net", "null phone", tuple(lines))

    def fault(self, plan: Plan) -> tuple[Fault | None, int]:
        """And how often the plan's own library ran."""
        library = self.library(self.on_gpu(plan) & self.wrong)
        return self.soundness.fault(plan, library), library.runs  # type: ignore[arg-type]


CPU, GPU, SPLIT = Placement("cpu"), Placement("gpu"), Placement("split", "height", 3)


def test_a_kernel_is_checked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench = Bench(monkeypatch, tmp_path, set())
    assert bench.fault(bench.plan(GPU, GPU, CPU)) == (None, RUNS)
    assert bench.fault(bench.plan(GPU, CPU, CPU)) == (None, 0)
    assert bench.fault(bench.plan(GPU, CPU, GPU)) == (None, RUNS)
    assert Bench(monkeypatch, tmp_path, set()).fault(bench.plan(GPU, GPU, GPU)) == (None, 0)


def test_a_plan_on_the_cpu_alone_is_not_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench = Bench(monkeypatch, tmp_path, set())
    assert bench.fault(bench.plan(CPU, CPU, CPU)) == (None, 0) and bench.built == 0


def test_the_operator_to_blame_is_recorded_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench = Bench(monkeypatch, tmp_path, {1})
    fault, runs = bench.fault(bench.plan(GPU, SPLIT, GPU))
    assert fault is not None and fault.error_no == ErrorNo.GPU_WRONG and runs == 1
    (record,) = bench.store.query()
    operator = bench.graph.operators[1]
    assert record.processor == "gpu" and record.error_no == ErrorNo.GPU_WRONG and not record.ok
    assert (record.piece.axis, record.piece.lo, record.piece.hi, record.piece.extent) == ("height", 3, 8, 8)
    assert record.workload == Workload.of(operator, bench.graph, "height", 3, 8).key
    assert any(operator.name in line and "wrong" in line for line in bench.said)
    # It is known from now on, and costs no run.
    assert Bench(monkeypatch, tmp_path, {1}).fault(bench.plan(GPU, SPLIT, GPU)) == (fault, 0)
