"""BatchRunner: AutoTVM's runner over one session that stays open.

Stock AutoTVM opens a session, sends a library and fills its arguments for each configuration.  Here a library of several
is sent once, and arguments are made once per kernel.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.autotvm.measure import MeasureErrorNo, MeasureInput, MeasureResult
from tvm.autotvm.measure.measure import Runner
from tvm.autotvm.measure.measure_methods import BuildResult

from tvm_codl.device.deadline import TimeUp
from tvm_codl.device.recovery import Log, Lost, Recovery
from tvm_codl.kernels.target import is_gpu
from tvm_codl.kernels.tuner.answers import RUNS, HostAnswers, Verdict, check_answers, time_kernel
from tvm_codl.kernels.tuner.builder import Built, failed
from tvm_codl.records.record import ErrorNo
from tvm_codl.runtime.error_text import last_line

ENTRY = "__tvm_main__"  # the one function of a library that another builder made
#: A candidate may run this many times as long as the best so far; the driver may take this long to prepare it.
SLOWER, READY_S = 30.0, 10.0
#: A candidate with which the session ended this often has failed.
TRIES = 2
LOSSES = 5
#: Libraries that stay loaded: finalists are measured in turn.
LIBRARIES = 4
LOAD_S = 30.0
#: For a candidate's answers: a large kernel's weights go to the phone, and it runs many times.
CHECK_S = 300.0

Keep = Callable[[MeasureInput, MeasureResult], None]


class BatchRunner(Runner):
    """Times built candidates on ``phone`` (:class:`~tvm_codl.device.connect.Phone`), on the processor of the task's target.

    ``number``, ``repeat`` and ``min_repeat_ms`` as in ``autotvm.RPCRunner``; as there, the largest and the smallest of more
    than two repeats are dropped.  A candidate gets ``timeout`` seconds, less once there is a time to compare with.
    ``keep`` is called with each result as it comes.
    """

    def __init__(
        self,
        phone: Any,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: int = 0,
        timeout: float = 20.0,
        keep: Keep = lambda candidate, result: None,
        log: Log = lambda _: None,
        patience_s: float = 60.0,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(timeout, 1)
        self.phone, self.keep, self.patience_s = phone, keep, patience_s
        self.number, self.repeat, self.min_repeat_ms = number, repeat, min_repeat_ms
        self.limits = limits
        self.best_s = 0.0
        self._answers: HostAnswers | None = None
        self._recovery = Recovery(phone, LOSSES, log)
        self._together: dict[str, list[str]] = {}  # the functions of libraries not loaded yet

    def set_task(self, task: Any) -> None:
        """Another kernel."""
        super().set_task(task)
        self.best_s = 0.0
        self._answers = None
        self._recovery.loaded.clear()

    def get_build_kwargs(self) -> dict[str, Any]:
        """What the device allows, by the names of ``tvm.tir.analysis.verify_gpu_code``."""
        if not is_gpu(self.task.target):
            return {"checks": {}}
        return {"checks": {"gpu": dict(self.limits if self.limits is not None else gpu_limits(self.phone.profile))}}

    def run(
        self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult | MeasureResult]
    ) -> list[MeasureResult]:
        """One result for each input.  Raises :class:`DeviceError` where the phone does not come back."""
        results = []
        self._together = {}
        for built in build_results:
            if hasattr(built, "function"):
                self._together.setdefault(built.filename, []).append(built.function)
        for candidate, built in zip(measure_inputs, build_results, strict=True):
            result = self._measure(candidate, built)
            results.append(result)
            self.keep(candidate, result)
        return results

    def interleaved(
        self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult], rounds: int
    ) -> list[list[float]]:
        """Seconds of each input, ``rounds`` times in turn, so that drift affects all alike; an empty list where one fails."""
        times: dict[int, list[float]] = {index: [] for index in range(len(measure_inputs))}
        for _ in range(rounds):
            for index in list(times):
                result = self._measure(measure_inputs[index], build_results[index])
                if result.error_no == MeasureErrorNo.NO_ERROR:
                    times[index].append(min(result.costs))
                else:
                    del times[index]
        return [times.get(index, []) for index in range(len(measure_inputs))]

    def check(self, candidate: MeasureInput, built: Built) -> Verdict:
        """Whether a candidate that was timed gives the host's answer, run after run.  Where the session ends with it, or
        its runs do not end, that is the verdict."""
        self._answers = answers = self._answers or HostAnswers(self.task)

        def checked() -> Verdict:
            module, _ = self._ready(built, self.phone.gpu)
            return check_answers(self.phone, module, built, answers)

        for _ in range(TRIES):
            try:
                verdict: Verdict = self._recovery.call(CHECK_S, checked)
            except Lost as lost:
                self._recovery.recover(lost, self.patience_s)
                words = f"the phone's session ended with it: {lost}"
                continue
            except TimeUp as late:
                self._recovery.recover(late, self.patience_s)
                return Verdict(int(ErrorNo.RUN_TIMEOUT), f"{RUNS} runs were {late}")
            except tvm.error.TVMError as error:
                return Verdict(int(ErrorNo.RUNTIME_DEVICE), last_line(error))
            self._recovery.succeeded()
            if verdict.error_no:
                self._recovery.log(f"a configuration of {self.task.name} {self.task.args} is not used: {verdict.words}")
            return verdict
        return Verdict(int(ErrorNo.RUNTIME_DEVICE), words)

    def _measure(self, candidate: MeasureInput, built: BuildResult | MeasureResult) -> MeasureResult:
        if isinstance(built, MeasureResult):
            return built
        if built.error is not None:  # of another builder
            return failed(MeasureErrorNo.COMPILE_HOST, str(built.error[1]), built.time_cost)
        started = time.monotonic()
        number, words = MeasureErrorNo.RUNTIME_DEVICE, ""
        for _ in range(TRIES):
            try:
                costs = self._times(candidate, built)
            except Lost as lost:
                self._recovery.recover(lost, self.patience_s)
                words = f"the phone's session ended with it: {self._recovery.how or lost}"
                continue
            except TimeUp as late:
                self._recovery.recover(late, self.patience_s)
                number, words = MeasureErrorNo.RUN_TIMEOUT, f"the run was {late}"
                break
            except tvm.error.TVMError as error:
                words = last_line(error)
                break
            self._recovery.succeeded()
            seconds = time.monotonic() - started + built.time_cost
            mean = sum(costs) / len(costs)
            self.best_s = min(self.best_s or mean, mean)
            return MeasureResult(costs, MeasureErrorNo.NO_ERROR, seconds, time.time())
        return failed(number, words, time.monotonic() - started + built.time_cost)

    def _times(self, candidate: MeasureInput, built: BuildResult) -> tuple[float, ...]:
        device = self.phone.gpu if is_gpu(candidate.target) else self.phone.cpu
        module, arguments = self._ready(built, device)

        def timed() -> tuple[float, ...]:
            # Not TVM's time_evaluator, whose events make a real GPU take some microseconds longer for each kernel.
            function = getattr(built, "function", ENTRY)
            runs = (self.number, self.repeat, arguments, self.min_repeat_ms)
            return tuple(time_kernel(self.phone, module, function, device, *runs))

        costs = self._recovery.call(self._limit_s(), timed)
        return tuple(sorted(costs)[1:-1]) if len(costs) > 2 else costs

    def _limit_s(self) -> float:
        if not self.best_s:
            return self.timeout
        runs = 1 + self.repeat * max(self.number, self.min_repeat_ms * 1e-3 / self.best_s)
        return min(self.timeout, READY_S + SLOWER * runs * self.best_s)

    def _ready(self, built: BuildResult, device: Any) -> tuple[Any, list[Any]]:
        """The library, loaded unless it is there already, and arguments of random numbers."""
        loaded, wanted = self._recovery.loaded, (str(device), tuple(built.arg_info))
        libraries = loaded.setdefault("libraries", {})
        if built.filename not in libraries:
            while len(libraries) >= LIBRARIES:
                del libraries[next(iter(libraries))]
            limit = LOAD_S + READY_S * len(self._together.get(built.filename, ()))
            libraries[built.filename] = self._prepared(limit, lambda: self._load(built, device))
        if loaded.get("arguments", ("",))[0] != wanted:
            loaded.pop("arguments", None)  # freed before others are made
            loaded["arguments"] = wanted, self._prepared(LOAD_S, lambda: self._filled(built.arg_info, device))
        return libraries[built.filename], loaded["arguments"][1]

    def _load(self, built: BuildResult, device: Any) -> Any:
        remote, path = self.phone.remote, Path(built.filename)
        name = f"{path.stem}-{time.time_ns()}{path.suffix}"
        self.phone.send(path, name)
        try:
            module = remote.load_module(name)
            self._warm_up(module, name, built, device)
            return module
        finally:
            remote.remove(name)

    def _warm_up(self, module: Any, name: str, built: BuildResult, device: Any) -> None:
        """Compiles all kernels of a library at once, where the driver can.

        If the session ends with it, the library's candidates are tried one by one.
        """
        functions = self._together.pop(built.filename, ())
        if device.device_type != self.phone.gpu.device_type or len(functions) < 2:
            return
        try:
            warm_up = self.phone.remote.get_function("codl.warm_up")
        except AttributeError:
            return  # not this phone
        try:
            warm_up(module, name, json.dumps(functions), json.dumps(built.arg_info))
        except tvm.error.TVMError:
            if not self.phone.alive():
                raise
            # One does not compile: its own run will fail.

    def _filled(self, arguments: Sequence[tuple[tuple[int, ...], str]], device: Any) -> list[Any]:
        fill = self.phone.remote.get_function("tvm.contrib.random.random_fill")
        made = [tvm.nd.empty(shape, dtype, device) for shape, dtype in arguments]
        for array in made:
            fill(array)
        device.sync()
        return made

    def _prepared(self, limit_s: float, work: Callable[[], Any]) -> Any:
        """As :meth:`Recovery.call`, for what comes before a candidate runs: the candidate is not to blame if it takes too long."""
        try:
            return self._recovery.call(limit_s, work)
        except TimeUp as late:
            raise Lost(f"loading a library was {late}", late) from late


def gpu_limits(profile: Any) -> dict[str, int]:
    """A :class:`~tvm_codl.device.profile.DeviceProfile`'s limits on a work-group: work-items, and bytes of local memory."""
    limits = {"max_threads_per_block": profile.max_work_group, "max_shared_memory_per_block": profile.local_memory}
    if profile.max_work_group:
        limits |= {f"max_thread_{axis}": profile.max_work_group for axis in "xyz"}
    return {name: int(value) for name, value in limits.items() if value}
