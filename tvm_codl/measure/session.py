"""A measuring session: probes in, records out; what is known is not measured again, and what fails is a record too."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from tvm_codl.device.opencl import cache_dir
from tvm_codl.errors import DeviceError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import axes
from tvm_codl.measure.batch import build_batch
from tvm_codl.measure.builders import Outcome, build_all, chunks, last_line
from tvm_codl.measure.probe import Probe
from tvm_codl.records.record import Piece, Record
from tvm_codl.records.store import RecordStore
from tvm_codl.runtime.comodule import CoModule

#: Probes in one library.  More would save uploads and lose more when the phone dies.
BATCH = 48
#: Samples of each probe, each one run with cold weights, as inside a network.
REPEAT = 7

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

    def measure(self, probes: Sequence[Probe]) -> list[Record]:
        """Records of all ``probes``: those in the store, then new ones.

        Each record is stored as soon as it is there.  Raises :class:`DeviceError` where the phone goes away.
        """
        known = {
            (r.workload, r.processor): r
            for p in ("cpu", "gpu")
            for r in self.store.query(device=self.device, processor=p, build=self.build)
        }
        records = [known[p.key, p.processor] for p in probes if (p.key, p.processor) in known]
        missing = [p for p in probes if (p.key, p.processor) not in known]
        if missing:
            self.log(f"measuring {len(missing)} pieces of operators ({len(records)} known already)")
        for record in self._batches(missing):
            self.store.add([record])
            records.append(record)
        return records

    def libraries(self, probes: Sequence[Probe]) -> list[tuple[Sequence[Probe], Outcome]]:
        """The probes in batches, each with its library: from the cache, else built, all of them before this returns.

        On the reference phone a compiler that still runs would disturb the times.
        """
        parts = [probes[a:b] for a, b in chunks(probes, BATCH, len(os.sched_getaffinity(0)))] if probes else []
        paths = [self._path(part) for part in parts]
        missing = [i for i, path in enumerate(paths) if not path.exists()]

        def build(index: int) -> Path:
            with self.scheduled():
                library = build_batch(self.graph, self.weights, parts[missing[index]], self.cpu, self.gpu)
            return library.export(paths[missing[index]])

        built = {missing[i]: outcome for i, outcome in build_all(len(missing), build)} if missing else {}
        return [(part, built.get(i) or Outcome(paths[i], "")) for i, part in enumerate(parts)]

    def _path(self, probes: Sequence[Probe]) -> Path:
        """Where the library of these probes lies: its kernels depend on the workloads and the build alone."""
        digest = hashlib.sha256(self.build.encode())
        for probe in probes:
            digest.update(f"{probe.processor}|{probe.key}\n".encode())
        return cache_dir() / "libraries" / f"batch-{digest.hexdigest()[:24]}.so"

    def _batches(self, probes: Sequence[Probe]) -> Iterator[Record]:
        for part, outcome in self.libraries(probes):
            if outcome.path is not None:
                yield from self._timed(part, outcome.path)
            elif len(part) == 1:
                yield self._record(part[0], (), outcome.error)
            else:
                # One bad candidate must not take its neighbours along: halve until it stands alone.
                half = len(part) // 2
                yield from self._batches(part[:half])
                yield from self._batches(part[half:])

    def _timed(self, probes: Sequence[Probe], path: Path) -> Iterator[Record]:
        module = open_remote(self.phone, path)
        for index, probe in enumerate(probes):
            try:
                times = tuple(module.time_region(index, REPEAT, 0.0))
            except tvm.error.RPCError as error:
                raise DeviceError("the phone went away while measuring", last_line(error)) from error
            except tvm.error.TVMError as error:
                yield self._record(probe, (), last_line(error))
                continue
            yield self._record(probe, times, "")

    def _record(self, probe: Probe, times: tuple[float, ...], error: str) -> Record:
        operator = self.graph.operators[probe.operator]
        extent = axes(operator, self.graph)[probe.axis].extent if probe.axis else 0
        piece = Piece(operator.kind, probe.axis, probe.lo, probe.hi, extent)
        return Record(probe.key, piece, probe.processor, self.device, self.build, times, time.time(), error=error)


def open_remote(phone: Any, path: Path, sharing: str = "auto") -> CoModule:
    """Sends a library to the phone and makes it ready there.

    Under a name of its own, since writing over a library that a module still runs would crash the phone; and the file
    goes as soon as it is loaded.
    """
    name = f"{path.stem}-{time.time_ns()}.so"
    phone.remote.upload(str(path), name)
    try:
        module = phone.remote.load_module(name)
    finally:
        phone.remote.remove(name)
    return CoModule(module, phone.cpu, sharing=sharing)
