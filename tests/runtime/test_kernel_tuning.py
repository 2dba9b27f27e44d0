"""Building many configurations at once, the tuners, and what is remembered; times come from a null runner."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tvm import autotvm, relay, transform
from tvm.autotvm.measure import MeasureErrorNo, MeasureInput, MeasureResult
from tvm.autotvm.measure.measure import Builder, Runner

from tests.runtime.kernel_tasks import DEEDS, conv_task, depthwise_task, first_legal, inputs_of
from tests.runtime.schedule_cases import OPTIONS, conv
from tvm_codl.build.library import build
from tvm_codl.errors import UserError
from tvm_codl.frontend.load import load_model
from tvm_codl.kernels.dispatch import plain, scheduled
from tvm_codl.kernels.gpu import usual
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.kernels.reuse import read
from tvm_codl.kernels.tuner.answers import Verdict
from tvm_codl.kernels.tuner.builder import BatchBuilder, failed
from tvm_codl.kernels.tuner.trials import Trials, append, knobs_of, legal
from tvm_codl.kernels.tuner.tune import KernelTuner, Settings
from tvm_codl.kernels.tuner.tuners import NAMES, KnobModel, make_tuner
from tvm_codl.kernels.workloads import workloads
from tvm_codl.measure.wanted_kernels import kernels, network_probes, plan_probes
from tvm_codl.plan.plan import Placement, uniform_plan
from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.record import ErrorNo
from tvm_codl.records.store import RecordStore
from tvm_codl.relay.pipeline import partition, prepare


@pytest.fixture(scope="module")
def task() -> Any:
    return conv_task(cpu_target(lanes=16))


def formula(config: Any) -> float:
    """Seconds that a null device takes: best at 7 columns and 2 blocks."""
    knobs = dict(knobs_of(config))
    return 1e-4 * (1 + abs(knobs["columns"] - 7) + abs(knobs.get("blocks", 2) - 2) + 0.1 * knobs["rows"])


class NullBuilder(Builder):
    def build(self, measure_inputs: Any) -> Any:
        return [None for _ in measure_inputs]


class NullRunner(Runner):
    """Times by :func:`formula`; ``lucky`` is measured too short, except when it is measured in turn with others.

    The ``wrong`` have wrong answers; ``checked`` lists whose answers were compared."""

    def __init__(
        self, keep: Any, lucky: int = -1, fails: frozenset[int] = frozenset(), wrong: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(n_parallel=1)
        self.keep, self.lucky, self.fails, self.wrong = keep, lucky, fails, wrong
        self.ran, self.checked = [0], list[int]()

    def get_build_kwargs(self) -> dict[str, Any]:
        return {}

    def run(self, measure_inputs: Any, build_results: Any) -> list[MeasureResult]:
        results = []
        for one in measure_inputs:
            self.ran[0] += 1
            seconds = 1e-9 if one.config.index == self.lucky else formula(one.config)
            result = MeasureResult((seconds,), 0, 0.1, float(self.ran[0]))
            if one.config.index in self.fails:
                result = failed(MeasureErrorNo.COMPILE_HOST, "null failure", 0.1)
            results.append(result)
            self.keep(one, result)
        return results

    def check(self, candidate: Any, built: Any) -> Verdict:
        self.checked.append(candidate.config.index)
        return Verdict(int(ErrorNo.GPU_WRONG), "null") if candidate.config.index in self.wrong else Verdict()

    def interleaved(self, measure_inputs: Any, build_results: Any, rounds: int) -> list[list[float]]:
        return [[formula(one.config) if one.config.index != self.lucky else 1.0] * rounds for one in measure_inputs]


def tuned(task: Any, folder: Path, runner: Any = None, **settings: Any) -> tuple[Any, Any, Trials]:
    trials = Trials(folder / "all.log", None)
    runner = runner or NullRunner(trials.keep)
    runner.keep = trials.keep
    tuner = KernelTuner(NullBuilder(n_parallel=4), runner, trials, folder / "best.log", Settings(**settings))
    return None if tuner.finished(task) else tuner.tune(task), runner, trials


def misbehaving(builder: BatchBuilder, *deeds: str) -> list[Any]:
    task = autotvm.task.create("tests.misbehaving", (64,), cpu_target(lanes=16))
    builder.set_task(task, {})
    return builder.build(inputs_of(task, *map(DEEDS.index, deeds)))


def test_each_candidate_of_a_library_fails_for_itself() -> None:
    builder = BatchBuilder(workers=1)
    results = misbehaving(builder, "work", "raise", "crash", "work")
    assert results[0].error is None and results[3].error is None
    assert [r.error_no for r in results[1:3]] == [MeasureErrorNo.COMPILE_HOST, MeasureErrorNo.COMPILE_HOST]
    assert "no schedule for this" in str(results[1].costs[1]) and "crashed" in str(results[2].costs[1])
    assert Path(results[0].filename).exists()
    builder.close()
    assert not Path(results[0].filename).exists()


def test_build_that_never_ends_is_ended() -> None:
    (result,) = misbehaving(BatchBuilder(timeout=1.0), "hang")
    assert result.error_no == MeasureErrorNo.BUILD_TIMEOUT


def test_candidates_share_a_library_under_names_of_their_own(task: Any) -> None:
    builder = BatchBuilder(workers=1)
    builder.set_task(task, {})
    results = builder.build(inputs_of(task, *first_legal(task, 3)))
    assert len({r.filename for r in results}) == 1 and len({r.function for r in results}) == 3
    assert results[0].arg_info[0] == ((1, 14, 14, 32), "float32")


def test_work_group_over_the_limit_is_not_built() -> None:
    task = depthwise_task(gpu_target(cpu_target(lanes=4), usual("mobile")))
    sizes = {index: dict(knobs_of(task.config_space.get(index)))["threads"] for index in legal(task.config_space)}
    small, large = (next(i for i, size in sizes.items() if size == wanted) for wanted in (64, 256))
    builder = BatchBuilder(workers=1)
    builder.set_task(task, {"checks": {"gpu": {"max_threads_per_block": 64}}})
    fits, too_large = builder.build(inputs_of(task, small, large))
    assert fits.error is None
    assert too_large.error_no == MeasureErrorNo.INSTANTIATION_ERROR and "limit" in str(too_large.costs[1])


def test_tiles_that_no_register_holds_are_not_in_the_space(task: Any) -> None:
    for index in legal(task.config_space):
        knobs = dict(knobs_of(task.config_space.get(index)))
        assert knobs["columns"] * knobs["blocks"] + knobs["blocks"] < 32
    assert task.config_space.is_index_valid(0)


@pytest.mark.parametrize("name", NAMES)
def test_tuner_proposes_each_configuration_once_and_none_that_is_known(task: Any, name: str) -> None:
    known = [
        (one, MeasureResult((formula(one.config),), 0, 0.1, 1.0)) for one in inputs_of(task, *first_legal(task, 3))
    ]
    tuner = make_tuner(name, task, known, [])
    seen: list[int] = []
    while tuner.has_next() and len(seen) < 200:
        batch = tuner.next_batch(7)
        seen += [config.index for config in batch]
        inputs = inputs_of(task, *(config.index for config in batch))
        tuner.update(inputs, [MeasureResult((formula(one.config),), 0, 0.1, 1.0) for one in inputs])
        if not batch:
            break
    assert len(seen) == len(set(seen)) and not set(seen) & {one.config.index for one, _ in known}
    assert set(seen) <= set(legal(task.config_space))
    if name != "climb":  # which stops at the top of its hill
        assert len(seen) == min(200, len(legal(task.config_space)) - 3)


def configurations(path: Path) -> list[Any]:
    return [one.config for one, _ in autotvm.record.load_from_file(str(path))]


@pytest.mark.parametrize("name", ["xgb", "climb"])
def test_tuner_finds_the_best(task: Any, tmp_path: Path, name: str) -> None:
    best = min(formula(task.config_space.get(i)) for i in legal(task.config_space))
    result, runner, _ = tuned(task, tmp_path, trials=40, tuner=name)
    assert runner.ran[0] <= 40 < len(legal(task.config_space))
    assert result.best_ms == pytest.approx(best * 1e3)
    (config,) = configurations(tmp_path / "best.log")
    assert formula(config) == pytest.approx(best)


@pytest.mark.parametrize("window", [1, 3])
def test_what_a_relative_has_shown_comes_first(window: int) -> None:
    task = conv_task(cpu_target(lanes=16), window=window)
    relative = conv_task(cpu_target(lanes=16), out=64, window=window)
    shown = [
        (one, MeasureResult((formula(one.config),), 0, 0.1, 1.0))
        for one in inputs_of(relative, *legal(relative.config_space))
    ]
    model = KnobModel(task)
    assert model.learn_from([shown]) == len(shown)
    space = legal(task.config_space)
    order = np.argsort(-model.predict(space))
    times = np.array([formula(task.config_space.get(i)) for i in space])
    assert times[order[:8]].mean() < 0.7 * times.mean()
    first = make_tuner("xgb", task, [], [shown]).next_batch(8)
    assert np.mean([formula(config) for config in first]) < times.mean()


def test_second_run_measures_nothing_and_more_trials_go_on(task: Any, tmp_path: Path) -> None:
    first, runner, _ = tuned(task, tmp_path, trials=12)
    assert runner.ran[0] == 12 == first.new
    again, runner, _ = tuned(task, tmp_path, trials=12)
    assert again is None and runner.ran[0] == 0
    more, runner, trials = tuned(task, tmp_path, trials=20)
    assert runner.ran[0] == 8 == more.new and more.trials == 20 == len(trials.find(task))


def test_a_winner_that_wins_again_is_not_written_again(task: Any, tmp_path: Path) -> None:
    """What is measured with the file goes by its content."""
    whole = len(legal(task.config_space))
    for trials in range(whole - 4, whole + 1):
        assert tuned(task, tmp_path, trials=trials)[0] is not None
    winners = [knobs_of(config) for config in configurations(tmp_path / "best.log")]
    assert 1 <= len(winners) < 5 and all(one != next for one, next in itertools.pairwise(winners))


def test_a_winner_for_other_vectors_is_written_beside(tmp_path: Path) -> None:
    """Depthwise kernels have one workload whatever their vectors."""
    for lanes in (16, 8):
        tuned(depthwise_task(cpu_target(lanes=lanes)), tmp_path, trials=4)
    assert [entry.serves.lanes for entry in read([tmp_path / "best.log"]).entries] == [16, 8]


def test_interrupted_run_keeps_what_it_measured(task: Any, tmp_path: Path) -> None:
    class Interrupted(NullRunner):
        def run(self, measure_inputs: Any, build_results: Any) -> list[MeasureResult]:
            if self.ran[0] >= 6:
                super().run(measure_inputs[:1], build_results[:1])
                raise KeyboardInterrupt
            return super().run(measure_inputs, build_results)

    runner = Interrupted(None)
    with pytest.raises(KeyboardInterrupt):
        tuned(task, tmp_path, runner, trials=20)
    done = len(Trials(tmp_path / "all.log", None).find(task))
    assert done == runner.ran[0] > 5
    result, runner, _ = tuned(task, tmp_path, trials=20)
    assert runner.ran[0] == 20 - done and result.trials == 20


def test_lucky_candidate_does_not_win(task: Any, tmp_path: Path) -> None:
    worst = max(legal(task.config_space), key=lambda i: formula(task.config_space.get(i)))
    result, _, _ = tuned(task, tmp_path, NullRunner(None, lucky=worst), trials=len(legal(task.config_space)))
    (config,) = configurations(tmp_path / "best.log")
    assert formula(config) < formula(task.config_space.get(worst)) and result.best_ms < 1.0


def test_the_next_best_takes_the_place_of_a_wrong_winner(tmp_path: Path) -> None:
    gpu = conv_task(gpu_target(cpu_target(lanes=4), usual("mobile")))
    order = sorted(legal(gpu.config_space), key=lambda index: formula(gpu.config_space.get(index)))
    runner = NullRunner(lambda *_: None, wrong=frozenset(order[:2]))
    result, runner, trials = tuned(gpu, tmp_path, runner, trials=len(order), tuner="gridsearch")
    assert runner.checked == order[:3]
    numbers = {candidate.config.index: outcome.error_no for candidate, outcome in trials.find(gpu)}
    assert [numbers[index] for index in order[:3]] == [ErrorNo.GPU_WRONG, ErrorNo.GPU_WRONG, 0]
    with scheduled([tmp_path / "best.log"], shipped=False) as context:
        assert knobs_of(context.suggestion(gpu.target, gpu.workload)) == knobs_of(gpu.config_space.get(order[2]))
    assert result.best_ms == pytest.approx(1e3 * formula(gpu.config_space.get(order[2])))
    # They stay out of later runs, which read the log.
    again = Trials(tmp_path / "all.log", None)
    assert {c.config.index for c, outcome in again.find(gpu) if outcome.error_no == ErrorNo.GPU_WRONG} == set(order[:2])


def test_a_wrong_configuration_in_use_is_used_no_more(tmp_path: Path) -> None:
    gpu = conv_task(gpu_target(cpu_target(lanes=4), usual("mobile")))
    first, other = inputs_of(gpu, *first_legal(gpu, 2))
    append(tmp_path / "old.log", first, MeasureResult((1e-6,), 0, 0.1, 1.0))
    append(tmp_path / "best.log", first, failed(int(ErrorNo.GPU_UNSTEADY), "null", 0.1))
    append(tmp_path / "best.log", other, MeasureResult((2e-6,), 0, 0.1, 2.0))
    with scheduled([tmp_path / "old.log", tmp_path / "best.log"], shipped=False) as context:
        assert knobs_of(context.suggestion(gpu.target, gpu.workload)) == knobs_of(other.config)


def test_the_answers_of_a_cpus_kernels_need_no_check(task: Any, tmp_path: Path) -> None:
    _, runner, _ = tuned(task, tmp_path, trials=8)
    assert not runner.checked


def test_early_stopping_and_failures(task: Any, tmp_path: Path) -> None:
    every = frozenset(legal(task.config_space)) - {0}
    result, runner, trials = tuned(task, tmp_path, NullRunner(None, fails=every), trials=60, early_stopping=8)
    assert 8 <= runner.ran[0] < 20 and result.best_ms == result.estimate_ms
    assert sum(r.error_no != 0 for _, r in trials.find(task)) == runner.ran[0] - 1
    again, runner, _ = tuned(task, tmp_path, trials=60, early_stopping=8)
    assert again is None and runner.ran[0] == 0


def test_trials_survive_a_half_written_line_and_other_files_are_refused(task: Any, tmp_path: Path) -> None:
    (one,) = inputs_of(task, 0)
    path = tmp_path / "all.log"
    append(path, one, MeasureResult((1e-3,), 0, 0.1, 1.0))
    whole = path.read_text()
    path.write_text(whole + whole[:40])
    assert len(Trials(path, None).find(task)) == 1 and path.read_text() == whole
    path.write_text(whole + "{}\n")
    with pytest.raises(UserError, match=r"all.log:2 is no tuning record") as raised:
        Trials(path, None)
    assert "remove the line" in raised.value.next


def test_a_trial_in_the_store_that_is_none_names_a_way_round_it(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "records.sqlite") as store:
        store.add([KernelRecord("no_such_kind", "a_task", "[]", "{}", (1e-3,), device="phone")])
        with pytest.raises(UserError, match=r"a trial in .*records\.sqlite is no tuning record") as raised:
            Trials(None, store, "phone")
        assert "--records FILE" in raised.value.next and "records export -o all.log" in raised.value.next
        assert "no_such_kind" in raised.value.evidence


def test_store_remembers_for_its_device_alone(task: Any, tmp_path: Path) -> None:
    inputs = inputs_of(task, *first_legal(task, 3))
    with RecordStore(tmp_path / "records.sqlite") as store:
        trials = Trials(None, store, "phone")
        trials.keep(inputs[0], MeasureResult((1e-3, 2e-3), 0, 0.1, 1.0))
        trials.keep(inputs[1], failed(MeasureErrorNo.COMPILE_HOST, "no", 0.1))
        trials.keep(inputs[2], failed(MeasureErrorNo.RUNTIME_DEVICE, "the phone died", 0.1))
        known = {one.config.index: result for one, result in Trials(None, store, "phone").find(task)}
        assert known[inputs[0].config.index].costs == (1e-3, 2e-3)
        assert known[inputs[1].config.index].error_no == MeasureErrorNo.COMPILE_HOST
        assert inputs[2].config.index not in known  # it may have been the phone
        again = failed(MeasureErrorNo.RUNTIME_DEVICE, "the phone died again", 0.1)._replace(timestamp=7.0)
        trials.keep(inputs[2], again)
        log = tmp_path / "all.log"
        append(log, inputs[2], again)  # the same trial in both
        for known_now in (trials.find(task), Trials(log, store, "phone").find(task)):
            assert inputs[2].config.index in [one.config.index for one, _ in known_now]
        assert not Trials(log, None).find(task)
        assert not Trials(None, store, "another phone").find(task)
        again = [one.config.index for one, _ in Trials(None, store, "phone", retry_failed=True).find(task)]
        assert again == [inputs[0].config.index]


def test_one_processors_kernel_does_not_pass_for_the_others(tmp_path: Path) -> None:
    """With as many lanes an operator's kernels on either processor have one workload."""
    cpu, gpu = conv_task(cpu_target(lanes=8)), conv_task(gpu_target(cpu_target(lanes=8)))
    assert plain(cpu.workload)[1:] == plain(gpu.workload)[1:]
    _, runner, trials = tuned(cpu, tmp_path, trials=2)
    for one in inputs_of(gpu, *first_legal(gpu, 2)):
        trials.keep(one, MeasureResult((1e-3,), 0, 0.1, 1.0))
    tuner = KernelTuner(NullBuilder(n_parallel=4), runner, trials, tmp_path / "best.log", Settings(trials=2))
    assert tuner.finished(cpu) and not tuner.finished(gpu)
    assert tuner.tune(gpu).processor == "gpu" and tuner.finished(gpu)


def test_lowering_asks_for_what_building_asks_for() -> None:
    module, target = conv(16, 64, 14, 14, 3, pad=1), cpu_target()
    with scheduled(shipped=False) as context, transform.PassContext(opt_level=3, config=OPTIONS):
        relay.build(module, target)
    assert workloads(module, target) == [workload for _, workload in context.seen]


def test_inputs_are_those_of_autotvm(task: Any) -> None:
    option = autotvm.measure_option(builder=BatchBuilder(batch=5), runner=NullRunner(lambda one, result: None))
    batch = autotvm.measure.create_measure_batch(task, option)
    assert batch.n_parallel == 5 and isinstance(inputs_of(task, 0)[0], MeasureInput)


def test_kernels_of_a_plan_are_those_that_its_library_asks_for() -> None:
    prepared = prepare(load_model("zoo:small"))
    targets = {"cpu": cpu_target(), "gpu": gpu_target()}
    plan = uniform_plan(prepared.graph, "gpu", prepared.name)
    lines = []
    for line in plan.operators:
        axis = prepared.axes[line.operator].get("channels")
        if axis is not None and axis.extent >= 16 and axis.extent % 16 == 0:
            line = msgspec.structs.replace(line, placement=Placement("split", "channels", axis.extent // 2))
        lines.append(msgspec.structs.replace(line, planned_ms=1.0))
    assert any(line.placement.on == "split" for line in lines)
    plan = msgspec.structs.replace(plan, operators=tuple(lines))
    probes = plan_probes(plan, prepared.graph, prepared.axes, ("cpu", "gpu"))
    found = kernels(prepared.graph, probes, targets)
    with scheduled(shipped=False) as context:
        build(partition(prepared, plan), targets["cpu"], targets["gpu"])
    assert {(k.processor, k.workload) for k in found} == set(context.seen)
    assert [k.ms for k in found] == sorted((k.ms for k in found), reverse=True)
    convolution = next(o for o in prepared.graph.operators if prepared.axes[o.id].get("height"))
    over = Placement("split", "height", 8, (2, 0))
    lines = [msgspec.structs.replace(o, placement=over) if o.operator == convolution.id else o for o in plan.operators]
    overlapping = msgspec.structs.replace(plan, operators=tuple(lines))
    probes = plan_probes(overlapping, prepared.graph, prepared.axes, ("cpu",))
    assert next((p.lo, p.hi) for p, _ in probes if p.operator == convolution.id) == (0, 10), "as it is built"
    assert all(k.processor == "cpu" for k in kernels(prepared.graph, network_probes(prepared.graph, ["cpu"]), targets))
