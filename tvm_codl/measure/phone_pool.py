"""PhonePool: several phones of one kind behind one tracker, measuring at once; they may come and go.

One thread for each phone: a TVM RPC call waits outside Python's lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from tvm_codl.device.connect import CONNECT_S, TrackerPhones, translate_errors
from tvm_codl.device.soc import read_soc
from tvm_codl.device.spec import Tracker
from tvm_codl.errors import CodlError, DeviceError
from tvm_codl.measure.context import Log
from tvm_codl.measure.settings import Settings
from tvm_codl.measure.trial import Event, Job, Result, Trial
from tvm_codl.measure.worker import Numbered, Worker
from tvm_codl.records.record import ErrorNo

#: Trials that a phone takes at once: enough to be worth loading the library, few enough that all end together.
SLICE = 12
LOOK_S = 1.0
#: How long a phone that went away may take to come back before its work goes to others.
ABSENT_S = 5.0
STOP_S = 10.0

MakeWorker = Callable[[Any, Log], Worker]


class Phones(Protocol):
    """Where phones are taken from, as :class:`~tvm_codl.device.connect.TrackerPhones` does."""

    def take(self) -> Any:
        """A phone that is free, or None.  Raises :class:`DeviceError` where it does not answer."""
        ...


class PhonePool:
    """The phones that serve one key, ``most`` at once.  It is also a phone itself: the first one.

    Phones that are free are taken, also those that come later, and kept until :meth:`close`.
    """

    def __init__(self, shelf: Phones, most: int = 16, log: Log = lambda _: None) -> None:
        """Takes the phones that are there.  Raises :class:`DeviceError` where there is none."""
        self._shelf, self._most, self._log = shelf, most, log
        first = shelf.take()
        if first is None:
            raise DeviceError("no phone of this key is free", "", "tvm-codl serve --tracker HOST:PORT --key KEY")
        self.phones = [first]
        #: Of all phones; what they measured is recorded under it also after the last has gone.
        self.profile = first.profile
        while len(self.phones) < most and self._add_phone():
            pass

    def __getattr__(self, name: str) -> Any:
        """Everything else is asked of the first phone."""
        if name.startswith("_") or not self.phones:
            raise AttributeError(name)
        return getattr(self.phones[0], name)

    def alive(self) -> bool:
        """Whether there is a phone, and all of them answer."""
        return bool(self.phones) and all(phone.alive() for phone in self.phones)

    def close(self) -> None:
        """Gives all phones back."""
        for phone in self.phones:
            phone.close()

    def _add_phone(self) -> Any:
        """Takes another phone of the same kind; None where none is free."""
        phone = self._shelf.take()
        if phone is None:
            return None
        profile = phone.profile
        if (profile.name, profile.build_id) != (self.profile.name, self.profile.build_id):
            phone.close()
            self._log(f"a phone of another kind serves the same key ({profile.name}): no more phones are taken")
            self._most = len(self.phones)
            return None
        self.phones.append(phone)
        return phone

    def run(self, jobs: Sequence[Job], make_worker: MakeWorker, settings: Settings) -> Iterator[Event]:
        """Spreads all jobs over the phones; others finish what a phone that goes away had begun.

        Raises :class:`DeviceError` where all are gone and none comes for ``settings.patience_s`` seconds.
        """
        run = _Run(self, jobs, make_worker, settings)
        try:
            yield from run.events()
        finally:
            run.stop()


@contextlib.contextmanager
def connect_pool(
    place: Tracker,
    most: int = 16,
    timeout_s: float = CONNECT_S,
    log: Log = lambda _: None,
    soc: str | Path | None = None,
) -> Iterator[PhonePool]:
    """The phones that serve a key at a tracker, ``most`` at once: what :func:`~tvm_codl.device.connect.connect` is for one.

    Raises :class:`DeviceError` where there is no tracker, where none of the phones is free or answers, and where one goes
    away while the caller's block asks it for something.
    """
    pool = PhonePool(TrackerPhones(place, timeout_s, read_soc(soc) if soc else None), most, log)
    try:
        with translate_errors(f"tracker {place.host}:{place.port}, key {place.key}", pool.alive):
            yield pool
    finally:
        pool.close()


class _Run:
    def __init__(self, pool: PhonePool, jobs: Sequence[Job], make_worker: MakeWorker, settings: Settings) -> None:
        self.pool, self.make_worker, self.settings = pool, make_worker, settings
        self.slices: deque[tuple[Path, list[Numbered]]] = deque()
        for job in jobs:
            numbered = list(enumerate(job.trials))
            size = max(1, min(SLICE, -(-len(numbered) // max(1, len(pool.phones)))))
            self.slices.extend((job.path, numbered[i : i + size]) for i in range(0, len(numbered), size))
        self.changed = threading.Condition()
        self.held = 0  # slices that phones are working on
        self.ended = False
        self.results: queue.Queue[Event | BaseException] = queue.Queue()
        self.threads: dict[threading.Thread, Worker] = {}

    def events(self) -> Iterator[Event]:
        for phone in list(self.pool.phones):
            self._start_worker(phone)
        looking = threading.Thread(target=self._look_for_more, daemon=True)
        looking.start()
        alone_since = None
        while True:
            try:
                event = self.results.get(timeout=0.2)
            except queue.Empty:
                if self._done():
                    break
                if any(thread.is_alive() for thread in self.threads):
                    alone_since = None
                    continue
                now = time.monotonic()
                if alone_since is None:
                    self.pool._log(f"all phones are gone; waiting {self.settings.patience_s:g} s for one")
                    alone_since = now
                if now - alone_since > self.settings.patience_s:
                    raise DeviceError(
                        "all phones are gone",
                        f"{len(self.slices)} parts are left; what was measured is kept",
                        "start a phone (tvm-codl serve --tracker HOST:PORT --key KEY), then run this again: it goes on",
                    ) from None
                continue
            if isinstance(event, BaseException):
                raise event
            yield event

    def stop(self) -> None:
        """Ends the threads; those that still measure lose their session, since their results are not needed any more."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        for thread, worker in list(self.threads.items()):
            if thread.is_alive() and not self._done():
                worker.stop()
        for thread in list(self.threads):
            thread.join(STOP_S)

    def _done(self) -> bool:
        with self.changed:
            return not self.slices and not self.held and self.results.empty()

    def _start_worker(self, phone: Any) -> None:
        number = len(self.threads) + 1

        def log(text: str) -> None:
            self.pool._log(f"phone {number}: {text}")

        worker = self.make_worker(phone, log)
        worker.patience_s, worker.stopped = ABSENT_S, False
        thread = threading.Thread(target=self._work, args=(worker, log), daemon=True)
        self.threads[thread] = worker
        thread.start()

    def _work(self, worker: Worker, log: Log) -> None:
        try:
            path = None
            while (taken := self._take(path)) is not None:
                path, trials = taken
                left = {trial: region for region, trial in trials}
                try:
                    for event in worker.measure(trials, path):
                        for trial in [event.trial] if isinstance(event, Result) else event.trials:
                            left.pop(trial, None)
                        self.results.put(event)
                except DeviceError as error:
                    if self.ended:
                        return
                    log(f"gone ({error.what}); its {len(left)} candidates go to the others")
                    self._give_back(path, left, worker)
                    self.pool.phones.remove(worker.phone)
                    return
                finally:
                    with self.changed:
                        self.held -= 1
                        self.changed.notify_all()
        except BaseException as error:
            self.results.put(error)

    def _take(self, path: Path | None) -> tuple[Path, list[Numbered]] | None:
        """The next slice, of the library at ``path`` if there is one; waits while others may still give theirs back."""
        with self.changed:
            while not self.ended:
                if self.slices:
                    same = next((s for s in self.slices if s[0] == path), self.slices[0])
                    self.slices.remove(same)
                    self.held += 1
                    return same
                if not self.held:
                    return None
                self.changed.wait()
        return None

    def _give_back(self, path: Path, left: dict[Trial, int], worker: Worker) -> None:
        trials = [(region, trial) for trial, region in left.items() if trial != worker.charged]
        if worker.charged in left:
            charged = dataclasses.replace(worker.charged, deaths=worker.charged.deaths + 1)
            if charged.deaths >= self.settings.tries:
                words = f"the phone went away {charged.deaths} times while it ran"
                self.results.put(Result(charged, (), ErrorNo.RUNTIME_DEVICE, words))
            else:
                trials.insert(0, (left[worker.charged], charged))  # it was the next to run
        worker.charged = None
        worker.journal.leave()  # what it was charged with is tried, or recorded, by this process
        if trials:
            with self.changed:
                self.slices.appendleft((path, trials))

    def _look_for_more(self) -> None:
        while not self.ended:
            with contextlib.suppress(CodlError):  # no tracker, no answer: another time
                if len(self.pool.phones) < self.pool._most and (phone := self.pool._add_phone()) is not None:
                    if self.ended:
                        return
                    self.pool._log(f"another phone has come: {phone.profile.name}")
                    self._start_worker(phone)
                    continue
            time.sleep(LOOK_S)
