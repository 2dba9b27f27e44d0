"""Candidates built by BatchBuilder and timed by BatchRunner on a real phone, also when its session is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import tvm
from tvm import autotvm
from tvm.autotvm.measure import MeasureErrorNo

from tests.phone.servers import phone_server, tvm_process, wait_until
from tests.runtime.kernel_tasks import ANSWERS, DEEDS, conv_task, first_legal, inputs_of
from tvm_codl.device.connect import connect
from tvm_codl.device.tracker_client import tracker_summary
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.gpu import usual
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.kernels.tuner.answers import time_kernel
from tvm_codl.kernels.tuner.builder import BatchBuilder
from tvm_codl.kernels.tuner.runner import BatchRunner, gpu_limits
from tvm_codl.kernels.tuner.trials import Trials
from tvm_codl.kernels.tuner.tune import KernelTuner, Settings
from tvm_codl.records.record import ErrorNo


@pytest.fixture(scope="module")
def phone() -> Iterator[Any]:
    with connect() as one:
        yield one


def measured(task: Any, runner: BatchRunner, indices: list[int]) -> list[Any]:
    option = autotvm.measure_option(builder=BatchBuilder(), runner=runner)
    return autotvm.measure.create_measure_batch(task, option)(inputs_of(task, *indices))


def session_of(phone: Any) -> psutil.Process:
    """The process behind an open session of a local phone."""
    servers = {
        child.pid: child
        for child in psutil.Process().children(recursive=True)
        if "tvm_codl.device.reference.server" in " ".join(child.cmdline())
    }
    # The server forks the session, which may have forked a process that compiles kernels.
    sessions = [child for child in servers.values() if child.ppid() in servers]
    return next(child for child in sessions if servers[child.ppid()] not in sessions)


@pytest.mark.parametrize("processor", ["cpu", "gpu"])
def test_candidates_are_timed(phone: Any, processor: str) -> None:
    task = conv_task(cpu_target() if processor == "cpu" else gpu_target())
    kept: list[Any] = []
    runner = BatchRunner(phone, number=1, repeat=4, keep=lambda one, result: kept.append(result))
    results = measured(task, runner, first_legal(task, 3))
    assert results == kept and [r.error_no for r in results] == [0, 0, 0]
    assert all(len(r.costs) == 2 and min(r.costs) > 0 for r in results)


def test_what_the_device_does_not_allow_is_not_sent(phone: Any) -> None:
    limits = gpu_limits(phone.profile)
    assert limits["max_threads_per_block"] == phone.profile.max_work_group
    task = conv_task(gpu_target(cpu_target(), usual("mobile")))
    (result,) = measured(task, BatchRunner(phone, limits={"max_threads_per_block": 1}), first_legal(task, 1))
    assert result.error_no == MeasureErrorNo.INSTANTIATION_ERROR


def test_candidate_that_kills_the_session_takes_no_other_along(phone: Any) -> None:
    task = autotvm.task.create("tests.misbehaving", (64,), cpu_target())
    said: list[str] = []
    results = measured(task, BatchRunner(phone, log=said.append), [DEEDS.index("abort on the phone"), 0, 1])
    assert [r.error_no for r in results] == [MeasureErrorNo.RUNTIME_DEVICE, 0, MeasureErrorNo.COMPILE_HOST]
    assert "session ended" in str(results[0].costs[1]) and any("opening another" in line for line in said)


def test_session_killed_in_the_middle_loses_nothing(phone: Any) -> None:
    task = conv_task(cpu_target())
    killed: list[int] = []

    def keep(one: Any, result: Any) -> None:
        if not killed:
            process = session_of(phone)
            killed.append(process.pid)
            process.kill()

    results = measured(task, BatchRunner(phone, keep=keep), first_legal(task, 3))
    assert killed and [r.error_no for r in results] == [0, 0, 0]


@pytest.mark.parametrize("processor", ["cpu", "gpu"])
def test_kernel_tuned_on_the_phone_is_used_by_the_next_build(phone: Any, tmp_path: Path, processor: str) -> None:
    task = conv_task(cpu_target() if processor == "cpu" else gpu_target())
    trials = Trials(tmp_path / "all.log", None)
    runner = BatchRunner(phone, number=1, repeat=1, keep=trials.keep)
    best = tmp_path / "best.log"
    tuned = KernelTuner(BatchBuilder(), runner, trials, best, Settings(trials=4)).tune(task)
    assert tuned is not None and tuned.trials == 4 and 0 < tuned.best_ms <= tuned.estimate_ms
    with scheduled([best], shipped=False) as context:
        assert context.suggestion(task.target, task.workload) is not None


@pytest.mark.parametrize(
    ("answer", "number"),
    [("right", 0), ("wrong", ErrorNo.GPU_WRONG), ("unwritten", ErrorNo.GPU_WRONG), ("unsteady", ErrorNo.GPU_UNSTEADY)],
)
def test_answers_are_compared_with_the_hosts_run_after_run(phone: Any, answer: str, number: int) -> None:
    task = autotvm.task.create("tests.answers", (64,), gpu_target())
    builder, runner = BatchBuilder(), BatchRunner(phone)
    autotvm.measure.create_measure_batch(task, autotvm.measure_option(builder=builder, runner=runner))
    (candidate,) = inputs_of(task, ANSWERS.index(answer))
    (built,) = builder.build([candidate])
    verdict = runner.check(candidate, built)
    assert verdict.error_no == number and bool(verdict.words) == bool(number)


def test_a_convolutions_answers_are_right(phone: Any) -> None:
    task = conv_task(gpu_target(cpu_target(), usual("mobile")))
    builder, runner = BatchBuilder(), BatchRunner(phone)
    autotvm.measure.create_measure_batch(task, autotvm.measure_option(builder=builder, runner=runner))
    inputs = inputs_of(task, *first_legal(task, 2))
    for candidate, built in zip(inputs, builder.build(inputs), strict=True):
        assert runner.check(candidate, built).error_no == 0


def test_runs_are_timed_back_to_back(phone: Any) -> None:
    task = autotvm.task.create("tests.answers", (64,), gpu_target())
    builder = BatchBuilder()  # it keeps what it built
    (built,) = builder.build(inputs_of(task, 0))
    phone.remote.upload(built.filename, "timed.so")
    module = phone.remote.load_module("timed.so")
    arrays = [tvm.nd.empty(shape, dtype, phone.gpu) for shape, dtype in built.arg_info]
    for least_ms in (0, 1):
        times = time_kernel(phone, module, built.function, phone.gpu, 10, 3, arrays, least_ms)
        assert len(times) == 3 and min(times) > 0


def test_autotvms_own_builder_and_runner_work_on_the_phone(tmp_path: Path) -> None:
    task = conv_task(cpu_target())
    with tvm_process("rpc_tracker") as (host, port), phone_server(tmp_path, port=0, tracker=f"{host}:{port}"):
        wait_until(lambda: "codl" in tracker_summary(host, port), "the phone registers")
        runner = autotvm.RPCRunner("codl", host, port, number=1, repeat=1, timeout=60)
        option = autotvm.measure_option(builder=autotvm.LocalBuilder(timeout=60), runner=runner)
        (result,) = autotvm.measure.create_measure_batch(task, option)(inputs_of(task, 0))
    assert result.error_no == 0
