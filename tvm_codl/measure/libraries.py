"""The libraries of probes: built once, kept in the cache, checked against the phone's limits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tvm_codl.build.limits import Limits, check
from tvm_codl.build.pool import Outcome, build_all
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.kernels.toolchain import Toolchain
from tvm_codl.measure.batch import build_batch
from tvm_codl.measure.probe import Probe
from tvm_codl.paths import cache_dir

#: A build's time limit: this much, and more for each probe in it.
BUILD_S, BUILD_EACH_S = 120.0, 10.0


@dataclass(frozen=True)
class Libraries:
    """Builds probes of one network."""

    graph: OpGraph
    weights: Mapping[str, np.ndarray]
    tools: Toolchain
    limits: Limits

    def built(self, parts: Sequence[Sequence[Probe]]) -> list[Outcome]:
        """A library for each part, whose region ``i`` is the part's probe ``i``; all of them before this returns.

        On the reference phone a compiler that still runs would disturb the times.
        """
        paths = [self._path(part) for part in parts]
        missing = [i for i, path in enumerate(paths) if not path.exists()]

        def build(index: int) -> Path:
            with self.tools.scheduled():
                library = build_batch(self.graph, self.weights, parts[missing[index]], self.tools.cpu, self.tools.gpu)
            check(library.launches, self.limits)
            return library.export(paths[missing[index]])

        def limit(index: int) -> float:
            return BUILD_S + BUILD_EACH_S * len(parts[missing[index]])

        found = {missing[i]: outcome for i, outcome in build_all(len(missing), build, limit_s=limit)} if missing else {}
        return [found.get(i) or Outcome(path) for i, path in enumerate(paths)]

    def _path(self, probes: Sequence[Probe]) -> Path:
        """Where the library of these probes lies: its kernels depend on the workloads and the build alone."""
        digest = hashlib.sha256(f"{self.tools.build_id}|{self.limits}".encode())
        for probe in probes:
            digest.update(f"{probe.processor}|{probe.key}\n".encode())
        return cache_dir() / "libraries" / f"batch-{digest.hexdigest()[:24]}.so"
