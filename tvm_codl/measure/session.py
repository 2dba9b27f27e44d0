"""A measuring session: probes in, records out; what is known is not measured again, and what fails is a record too."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from tvm_codl.errors import CodlError, DeviceError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import axes
from tvm_codl.measure.batch import build_batch
from tvm_codl.measure.probe import Probe
from tvm_codl.records.record import Piece, Record
from tvm_codl.records.store import RecordStore
from tvm_codl.runtime.comodule import CoModule

#: Probes in one library.  More would save uploads and lose more when the phone dies.
BATCH = 48
REPEAT = 5
MIN_MS = 1.0

Log = Callable[[str], None]


@dataclass
class Session:
    """One network on one phone.  ``build`` names compiler and schedules, so that records of another build are not
    mistaken for these; ``phone`` offers ``remote``, ``cpu`` and ``profile``."""

    graph: OpGraph
    weights: Mapping[str, np.ndarray]
    cpu: tvm.target.Target
    gpu: tvm.target.Target
    phone: Any
    device: str
    build: str
    store: RecordStore
    log: Log
    scheduled: Callable[[], Any]

    def measure(self, probes: Sequence[Probe], deadline: float = float("inf")) -> list[Record]:
        """Records of all ``probes``: those in the store, then new ones until ``deadline`` (of ``time.monotonic``).

        Each record is stored as soon as it is there.  Raises :class:`DeviceError` where the phone goes away.
        """
        known = {
            (r.workload, r.processor): r
            for p in ("cpu", "gpu")
            for r in self.store.query(device=self.device, processor=p)
            if r.build == self.build
        }
        records = [known[p.key, p.processor] for p in probes if (p.key, p.processor) in known]
        missing = [p for p in probes if (p.key, p.processor) not in known]
        if missing:
            self.log(f"measuring {len(missing)} pieces of operators ({len(records)} known already)")
        for start in range(0, len(missing), BATCH):
            if time.monotonic() > deadline:
                self.log(f"the budget is used up: {len(missing) - start} pieces are left to the model")
                break
            for record in self._batch(missing[start : start + BATCH]):
                self.store.add([record])
                records.append(record)
        return records

    def _batch(self, probes: Sequence[Probe]) -> Iterator[Record]:
        try:
            with self.scheduled():
                library = build_batch(self.graph, self.weights, probes, self.cpu, self.gpu)
        except (tvm.error.TVMError, CodlError, ValueError, AssertionError, TypeError) as error:
            if len(probes) == 1:
                yield self._record(probes[0], (), _first_line(error))
                return
            # One bad candidate must not take its neighbours along: halve until it stands alone.
            half = len(probes) // 2
            yield from self._batch(probes[:half])
            yield from self._batch(probes[half:])
            return
        with tempfile.TemporaryDirectory(prefix="tvm-codl-batch-") as folder:
            path = library.export(Path(folder) / f"batch-{time.time_ns()}.so")
            module = open_remote(self.phone, path)
            for index, probe in enumerate(probes):
                try:
                    times = tuple(module.time_region(index, REPEAT, MIN_MS))
                except tvm.error.RPCError as error:
                    raise DeviceError("the phone went away while measuring", _first_line(error)) from error
                except tvm.error.TVMError as error:
                    yield self._record(probe, (), _first_line(error))
                    continue
                yield self._record(probe, times, "")

    def _record(self, probe: Probe, times: tuple[float, ...], error: str) -> Record:
        operator = self.graph.operators[probe.operator]
        extent = axes(operator, self.graph)[probe.axis].extent if probe.axis else 0
        piece = Piece(operator.kind, probe.axis, probe.lo, probe.hi, extent)
        return Record(probe.key, piece, probe.processor, self.device, self.build, times, time.time(), error=error)


def open_remote(phone: Any, path: Path, sharing: str = "auto") -> CoModule:
    """Sends a library to the phone and makes it ready there."""
    phone.remote.upload(str(path))
    module = phone.remote.load_module(path.name)
    return CoModule(module, phone.cpu, sharing=sharing)


def _first_line(error: BaseException) -> str:
    lines = [x.strip() for x in str(error).splitlines() if x.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]
