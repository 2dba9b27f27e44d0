"""One phone that measures: whatever happens to it, every candidate ends with its times or with a reason."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tvm

from tvm_codl.build.pool import last_line
from tvm_codl.device.deadline import TimeUp
from tvm_codl.device.recovery import Lost, Recovery
from tvm_codl.errors import CodlError, DeviceError
from tvm_codl.measure.baseline import Baseline, Verdict
from tvm_codl.measure.context import Log
from tvm_codl.measure.journal import Entry, Journal
from tvm_codl.measure.sampling import samples
from tvm_codl.measure.settings import Settings
from tvm_codl.measure.trial import Event, Refused, Result, Trial
from tvm_codl.records.record import ErrorNo, Processor
from tvm_codl.runtime.comodule import CoModule

#: Losses of the phone with nothing measured in between, after which it is the phone that is to blame, and not what it
#: was given: halving the library of two bad candidates takes half as many.
LOSSES = 16
#: How often one candidate is timed anew because the phone had been slow.
REPEATS = 2
BASELINE_SAMPLES, BASELINE_MS = 5, 1.0

#: A region of a library, and the trial that it is.
Numbered = tuple[int, Trial]
#: The library of the baseline's operators, and the region of each processor's.
BaselineLibrary = tuple[Path, Mapping[Processor, int]]


class Unloadable(Exception):
    """The phone does not take this library: one of the candidates in it is to blame."""

    def __init__(self, failure: ErrorNo, words: str) -> None:
        super().__init__(words)
        self.failure, self.words = failure, words


class Worker:
    """A phone, its baseline and its journal.

    ``phone`` offers ``remote``, ``send``, ``cpu``, ``opened``, ``alive()``, ``drop()`` and ``reopen(patience_s, log)``, as
    :class:`~tvm_codl.device.connect.Phone` does; ``entry`` names a trial in the journal; without ``baseline`` nobody looks
    whether the phone keeps its speed.
    """

    def __init__(
        self,
        phone: Any,
        settings: Settings,
        log: Log,
        journal: Journal,
        entry: Callable[[Trial], Entry],
        baseline: BaselineLibrary | None = None,
    ) -> None:
        self.phone, self.settings, self.log, self.journal, self.entry = phone, settings, log, journal, entry
        self.baseline = baseline
        self.patience_s = settings.patience_s
        #: The trial with which the phone was lost for good.
        self.charged: Trial | None = None
        self._drift = Baseline(self._time_baseline, settings, log, time.sleep)
        self._unchecked = settings.baseline_every
        self._recovery = Recovery(phone, LOSSES, log)
        self._lost_looks = 0
        self.stopped = False

    def stop(self) -> None:
        """From another thread: ends :meth:`measure` with a :class:`DeviceError`, whatever the phone is doing."""
        self.stopped = True
        self.phone.drop()

    def measure(self, trials: Sequence[Numbered], path: Path) -> Iterator[Event]:
        """Times ``trials``, regions of the library at ``path``.  One comes again where the phone turned out to have been
        slow: the later result counts.  Where the library cannot be loaded, those without a result are refused.

        Raises :class:`DeviceError` where the phone does not come back; trials that have not come yet are then still to be
        measured.
        """
        waiting = deque(trials)
        deaths: Counter[int] = Counter({region: trial.deaths for region, trial in trials})
        repeats: Counter[int] = Counter()
        unsure: list[Numbered] = []  # measured since the phone was last seen to be as fast as at first
        finished: list[Numbered] = []
        self.charged = None
        try:
            while waiting or unsure:
                if self.stopped:
                    raise DeviceError("measuring was stopped")
                try:
                    again = self._doubtful(unsure, finished, not waiting)
                    module = self._opened(path, len(trials))  # after it: a look that got stuck costs the session
                except Lost as lost:
                    self._recover(lost)
                    continue
                except Unloadable as error:
                    if left := [trial for region, trial in trials if (region, trial) not in finished]:
                        yield Refused(left, error.failure, error.words)
                    return
                again = [(region, trial) for region, trial in again if repeats[region] < REPEATS]
                repeats.update(region for region, _ in again)
                waiting.extendleft(reversed(again))
                if not waiting:
                    break
                region, trial = waiting[0]
                self.journal.enter(self.entry(trial))
                try:
                    result = Result(trial, self._timed(module, region, trial))
                except Lost as lost:
                    deaths[region] += 1
                    self._recover(lost, trial)
                    if deaths[region] < self.settings.tries:
                        continue  # it is the first to run in the new session
                    words = (
                        f"the phone's session ended {deaths[region]} times while it ran: {self._recovery.how or lost}"
                    )
                    result = Result(trial, (), ErrorNo.RUNTIME_DEVICE, words)
                except TimeUp as late:
                    self.log(f"operator {trial.probe.operator} on the {trial.probe.processor}: {late}; it is given up")
                    self._recover(late, trial)
                    result = Result(trial, (), ErrorNo.RUN_TIMEOUT, f"the run was {late}")
                except tvm.error.TVMError as error:
                    result = Result(trial, (), ErrorNo.RUNTIME_DEVICE, last_line(error))
                waiting.popleft()
                self._recovery.succeeded()
                self._unchecked += 1
                unsure.append((region, trial))
                finished.append((region, trial))
                yield result
        finally:
            # What the phone was lost with stays there: the next process runs it last and alone, as if this one had died.
            if self.charged is None or self.stopped:
                self.journal.leave()

    def tell_drift(self) -> None:
        """At the end of a session: how often the phone changed its speed, if it did."""
        self._drift.tell_changes()

    def _timed(self, module: CoModule, region: int, trial: Trial) -> tuple[float, ...]:
        def run(number: int, limit_s: float) -> Sequence[float]:
            return self._recovery.call(
                limit_s, lambda: module.time_region(region, number, 0.0, self.settings.network_bytes)
            )

        return samples(run, self.settings, trial.predicted_ms)

    def _doubtful(self, unsure: list[Numbered], finished: list[Numbered], last: bool) -> list[Numbered]:
        """The trials whose times the baseline no longer vouches for; looks only when it is time to."""
        if self.baseline is None:
            unsure.clear()
            return []
        if not last and self._unchecked < self.settings.baseline_every:
            return []
        verdict = self._drift.check()
        self._unchecked = 0
        again = list(finished if verdict is Verdict.FASTER else unsure if verdict is Verdict.RECOVERED else ())
        if verdict is not Verdict.SLOW or last:
            unsure.clear()
        return again

    def _time_baseline(self) -> dict[Processor, float]:
        """The baseline operators' times with warm caches, the least of a few: what the phone can do, whoever disturbs it."""
        if self.baseline is None:
            return {}
        path, regions = self.baseline
        try:
            module = self._opened(path, len(regions))
            times = {}
            for processor, region in regions.items():
                look = partial(module.time_region, region, BASELINE_SAMPLES, BASELINE_MS)
                times[processor] = min(self._recovery.call(self.settings.first_s, look))
            return times
        except Lost as lost:
            self._lost_looks += 1
            if self._lost_looks < self.settings.tries:
                raise
            self._recover(lost)
            self.log(f"no alarm for drift: the phone's session ended {self._lost_looks} times in the baseline")
            self.baseline = None
            return {}
        except (Unloadable, TimeUp, tvm.error.TVMError) as error:
            if isinstance(error, TimeUp):  # it still holds the session
                self._recover(error)
            self.log(f"no alarm for drift: the baseline does not run ({last_line(error)})")
            self.baseline = None
            return {}

    def _opened(self, path: Path, count: int) -> CoModule:
        """The library on the phone, loaded unless it is there already; only the last one and the baseline's stay."""
        loaded = self._recovery.loaded
        if path in loaded:
            module: CoModule = loaded[path]
            return module
        for other in list(loaded):
            if self.baseline is None or other != self.baseline[0]:
                del loaded[other]
        limit = self.settings.load_s + self.settings.load_each_s * count
        words = ""
        for _ in range(self.settings.tries):
            try:
                module = self._recovery.call(limit, lambda: open_remote(self.phone, path))
            except Lost as lost:
                words = f"the phone's session ended while it loaded the library: {lost}"
                self._recover(lost)
            except TimeUp as late:
                self._recover(late)
                raise Unloadable(ErrorNo.RUN_TIMEOUT, f"loading it was {late}") from late
            except (CodlError, tvm.error.TVMError) as error:
                raise Unloadable(ErrorNo.RUNTIME_DEVICE, last_line(error)) from error
            else:
                self._recovery.loaded[path] = module
                return module
        raise Unloadable(ErrorNo.RUNTIME_DEVICE, words)

    def _recover(self, error: Lost | TimeUp, charged: Trial | None = None) -> None:
        """``charged`` is the trial that is to blame where the phone does not come back."""
        self.charged = charged
        if self.stopped:
            raise DeviceError("measuring was stopped", str(error))
        self._recovery.recover(error, self.patience_s)
        self.charged = None


def open_remote(phone: Any, path: Path, sharing: str = "auto") -> CoModule:
    """Sends a library to the phone and makes it ready there.

    Under a name of its own, since writing over a library that a module still runs would crash the phone; and the file
    goes as soon as it is loaded.  The reference phone compiles its OpenCL kernels first, on two cores.
    """
    name = f"{path.stem}-{time.time_ns()}.so"
    phone.send(path, name)
    try:
        module = phone.remote.load_module(name)
        with contextlib.suppress(AttributeError):  # another phone
            phone.remote.get_function("codl.compile_kernels")(module, name)
    finally:
        phone.remote.remove(name)
    return CoModule(module, phone.cpu, sharing=sharing)
