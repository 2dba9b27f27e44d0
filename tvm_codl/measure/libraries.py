"""The libraries of probes: many in one, built once, kept in the cache, checked against the phone's limits.

Each probe is a region of its own with buffers of its own; the co-executor times it alone on its processor.  Weights
are left out of the library (a kernel's time does not depend on their values), which keeps the upload small.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tvm

from tvm_codl.build.dataflow import Argument, Dataflow, Region, Root, Value, shape_of
from tvm_codl.build.kernel_cache import KernelCache
from tvm_codl.build.library import Library, build_dataflow
from tvm_codl.build.limits import Limits, check
from tvm_codl.build.pool import Outcome, build_all
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.kernels.toolchain import Toolchain
from tvm_codl.measure.probe import Probe
from tvm_codl.paths import cache_dir
from tvm_codl.relay.piece import piece_function

#: A build's time limit: this much, and more for each probe in it.
BUILD_S, BUILD_EACH_S = 120.0, 10.0


def build_libraries(
    graph: OpGraph,
    weights: Mapping[str, np.ndarray],
    tools: Toolchain,
    limits: Limits,
    parts: Sequence[Sequence[Probe]],
) -> list[Outcome]:
    """A library for each part, whose region ``i`` is the part's probe ``i``; all of them before this returns.

    On the reference phone a compiler that still runs would disturb the times.
    """
    paths = [_path(part, tools, limits) for part in parts]
    missing = [i for i, path in enumerate(paths) if not path.exists()]

    def build(index: int) -> Path:
        with tools.scheduled():
            library = build_batch(
                graph, weights, parts[missing[index]], tools.cpu, tools.gpu, KernelCache(tools.build_id)
            )
        check(library.launches, limits)
        return library.export(paths[missing[index]])

    def limit(index: int) -> float:
        return BUILD_S + BUILD_EACH_S * len(parts[missing[index]])

    built = {missing[i]: outcome for i, outcome in build_all(len(missing), build, limit_s=limit)} if missing else {}
    return [built.get(i) or Outcome(path) for i, path in enumerate(paths)]


def _path(probes: Sequence[Probe], tools: Toolchain, limits: Limits) -> Path:
    """Where the library of these probes lies: its kernels depend on the workloads and the build alone."""
    digest = hashlib.sha256(f"{tools.build_id}|{limits}".encode())
    for probe in probes:
        digest.update(f"{probe.processor}|{probe.key}\n".encode())
    return cache_dir() / "libraries" / f"batch-{digest.hexdigest()[:24]}.so"


def build_batch(
    graph: OpGraph,
    weights: Mapping[str, np.ndarray],
    probes: Sequence[Probe],
    cpu: tvm.target.Target,
    gpu: tvm.target.Target,
    cache: KernelCache | None = None,
) -> Library:
    """The library of :func:`probe_dataflow`; region ``i`` is ``probes[i]``."""
    return build_dataflow(probe_dataflow(graph, weights, probes), cpu, gpu, keep_weights=False, cache=cache)


def probe_dataflow(graph: OpGraph, weights: Mapping[str, np.ndarray], probes: Sequence[Probe]) -> Dataflow:
    """One region for each probe, in their order."""
    roots: list[Root] = []
    regions: list[Region] = []

    def tensors(types: Sequence[tvm.ir.TensorType]) -> list[Value]:
        roots.extend(Root(shape_of(each), str(each.dtype)) for each in types)
        return [Value(number) for number in range(len(roots) - len(types), len(roots))]

    for index, probe in enumerate(probes):
        part = probe.piece(graph)
        function = piece_function(part, weights, [graph.tensors[t].dtype for t in part.operator.inputs])
        inputs = [Argument(value) for value in tensors([param.checked_type for param in function.params])]
        result = function.ret_type
        fields = list(result.fields) if isinstance(result, tvm.ir.TupleType) else [result]
        outputs = tensors(fields)
        regions.append(Region(f"probe_{index}", probe.processor, str(probe.operator), function, inputs, outputs))
    return Dataflow(roots, regions, [], [], timed_alone=True)
