"""Measurer: probes in, records out.  What is on record is not measured again; a failure is a record too."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from tvm_codl.build.limits import Limits
from tvm_codl.build.pool import Outcome, deal
from tvm_codl.graph.footprint import touched_bytes
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import axes
from tvm_codl.measure import journal
from tvm_codl.measure.baseline import baseline_probes
from tvm_codl.measure.context import Context, Log
from tvm_codl.measure.libraries import build_libraries
from tvm_codl.measure.phone_pool import PhonePool
from tvm_codl.measure.probe import Probe
from tvm_codl.measure.settings import Settings
from tvm_codl.measure.trial import Event, Job, Result, Trial
from tvm_codl.measure.worker import BaselineLibrary, Worker
from tvm_codl.records.record import ErrorNo, Piece, Record
from tvm_codl.relay.prepared import Prepared

#: Probes in one library.  More would save uploads and lose more when the phone dies.
BATCH = 48

#: A candidate's name in the store: workload and processor.
Key = tuple[str, str]


@dataclass
class Measurer:
    """Measures pieces of one network on the phone of ``context``, or on a pool of phones of one kind.

    ``settings`` say how pieces are timed.
    """

    graph: OpGraph
    weights: Mapping[str, np.ndarray]
    context: Context
    settings: Settings
    _workers: dict[int, Worker] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, prepared: Prepared, context: Context) -> Measurer:
        """For a network of which each piece is timed as inside that network."""
        settings = msgspec.structs.replace(context.settings, network_bytes=touched_bytes(prepared.graph))
        return cls(prepared.graph, prepared.weights, context, settings)

    def measure(
        self,
        probes: Sequence[Probe],
        predicted_ms: Sequence[float | None] | None = None,
        retry_failed: bool = False,
    ) -> list[Record]:
        """Records of all ``probes``: those in the store, then new ones.

        Each record is stored as soon as it is there.  ``predicted_ms``, one for each probe, bounds how long it may take
        on the phone.  A probe that failed once is not tried again unless ``retry_failed``; one with which an earlier
        process died runs last and alone.  Raises :class:`DeviceError` where the phone goes away for good.
        """
        context, store = self.context, self.context.store
        recorded = self.newest_records()
        if retry_failed:
            recorded = {key: record for key, record in recorded.items() if record.ok}
        predicted = predicted_ms if predicted_ms is not None else [None] * len(probes)
        suspects = journal.suspects(store.path)
        for identity in suspects:  # that process died after the record was stored
            if identity[2:] == (context.device, context.tools.kernel_id) and identity[:2] in recorded:
                journal.acquit(store.path, identity)
        missing: dict[Key, Trial] = {}
        for probe, expected in zip(probes, predicted, strict=True):
            key = (probe.key, probe.processor)
            if key not in recorded:
                trial = Trial(probe, expected)
                deaths = suspects.get(self._entry(trial).identity, 0)
                missing[key] = dataclasses.replace(trial, deaths=deaths)
        if missing:
            context.log(
                f"measuring {len(missing)} pieces of operators ({len(probes) - len(missing)} on record already)"
            )
        profile = store.keep_profile(context.profile.to_json()) if missing else ""
        new: dict[Key, Record] = {}
        for result in self._results(list(missing.values())):
            record = self._record(result, profile)
            store.add([record])
            if result.trial.deaths:
                journal.acquit(store.path, self._entry(result.trial).identity)
            new[record.workload, record.processor] = record
        wanted = {(p.key, p.processor): None for p in probes}
        return [recorded[key] for key in wanted if key in recorded] + [new[key] for key in wanted if key in new]

    def newest_records(self) -> dict[Key, Record]:
        """The newest record of each candidate of this device and build."""
        return {(r.workload, r.processor): r for r in self.context.records()}

    def libraries(self, probes: Sequence[Probe]) -> list[tuple[Sequence[Probe], Outcome]]:
        """The probes in batches, each with its library: from the cache, else built, all of them before this returns."""
        parts = deal(probes, BATCH, _cores())
        return list(zip(parts, self._build(parts), strict=True))

    def tell_drift(self) -> None:
        """At the end of a session: how often the phones changed their speed, if they did."""
        for worker in self._workers.values():
            worker.tell_drift()

    def _build(self, parts: Sequence[Sequence[Probe]]) -> list[Outcome]:
        profile = self.context.profile
        limits = Limits(profile.max_work_group, profile.local_memory)
        return build_libraries(self.graph, self.weights, self.context.tools, limits, parts)

    def _results(self, trials: Sequence[Trial]) -> Iterator[Result]:
        """What comes of each trial; one comes again where the later result counts."""
        hopeless = [t for t in trials if t.deaths >= self.settings.tries]
        for trial in hopeless:
            yield Result(trial, (), ErrorNo.UNKNOWN_ERROR, f"{trial.deaths} processes died while they measured it")
        usual = [t for t in trials if not t.suspect]
        parts = deal(usual, BATCH, _cores())
        parts += [[t] for t in trials if t.suspect and t not in hopeless]
        # A few candidates are over before a phone could drift.
        baseline: list[Probe] = []
        if len(usual) >= self.settings.baseline_every:
            broken = {key for key, record in self.newest_records().items() if not record.ok}
            baseline = [probe for probe in baseline_probes(self.graph) if (probe.key, probe.processor) not in broken]
        library: BaselineLibrary | None = None
        while parts:
            jobs: list[Job] = []
            while parts:
                again: list[list[Trial]] = []
                outcomes = self._build([[t.probe for t in part] for part in parts] + [baseline] * bool(baseline))
                if baseline:
                    library, baseline = self._baseline_library(baseline, outcomes.pop()), []
                for part, outcome in zip(parts, outcomes, strict=True):
                    if outcome.path is not None:
                        jobs.append(Job(outcome.path, part))
                    else:
                        failed, rest = _blamed(part, outcome)
                        yield from failed
                        again += rest
                parts = again
            for event in self._events(jobs, library):
                if isinstance(event, Result):
                    yield event
                elif len(event.trials) == 1:
                    yield Result(event.trials[0], (), event.failure, event.words)
                else:
                    parts += _halves(event.trials)

    def _events(self, jobs: Sequence[Job], baseline: BaselineLibrary | None) -> Iterator[Event]:
        def worker(phone: Any, log: Log) -> Worker:
            made = self._workers.get(id(phone))
            if made is None:
                own = journal.Journal(self.context.store.path)
                made = Worker(phone, self.settings, log, own, self._entry)
                self._workers[id(phone)] = made
            made.baseline = baseline
            return made

        if isinstance(self.context.phone, PhonePool):
            return self.context.phone.run(jobs, worker, self.settings)
        only = worker(self.context.phone, self.context.log)
        return (event for job in jobs for event in only.measure(list(enumerate(job.trials)), job.path))

    def _baseline_library(self, probes: Sequence[Probe], outcome: Outcome) -> BaselineLibrary | None:
        if outcome.path is None:
            self.context.log(f"no alarm for drift: the baseline does not build ({outcome.error})")
            return None
        return outcome.path, {probe.processor: region for region, probe in enumerate(probes)}

    def _entry(self, trial: Trial) -> journal.Entry:
        probe = trial.probe
        return journal.Entry(
            probe.key, probe.processor, self.context.device, self.context.tools.kernel_id, trial.deaths
        )

    def _record(self, result: Result, profile: str) -> Record:
        probe, context = result.trial.probe, self.context
        operator = self.graph.operators[probe.operator]
        extent = axes(operator, self.graph)[probe.axis].extent if probe.axis else 0
        piece = Piece(operator.kind, probe.axis, probe.lo, probe.hi, extent)
        return Record(
            probe.key, piece, probe.processor, context.device, context.tools.kernel_id, result.times_ms, time.time(),
            "alone", result.error, int(result.failure), profile,
        )  # fmt: skip


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _blamed(part: list[Trial], outcome: Outcome) -> tuple[list[Result], list[list[Trial]]]:
    """What a library that did not build says of its trials, and what to build instead."""
    if outcome.offenders:
        failed = [Result(part[i], (), outcome.failure, words) for i, words in outcome.offenders.items()]
        rest = [trial for i, trial in enumerate(part) if i not in outcome.offenders]
        return failed, [rest] if rest else []
    if len(part) == 1:
        return [Result(part[0], (), outcome.failure, outcome.error)], []
    # One bad candidate must not take its neighbours along: halve until it stands alone.
    return [], _halves(part)


def _halves(part: Sequence[Trial]) -> list[list[Trial]]:
    half = len(part) // 2
    return [list(part[:half]), list(part[half:])]
