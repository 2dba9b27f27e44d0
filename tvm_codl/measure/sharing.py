"""Measures what sharing costs on a phone: waits, copies, and rewriting a tensor in another layout."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tvm
from tvm import relay

from tvm_codl.build.dataflow import Argument, Dataflow, Region, Root, Value
from tvm_codl.build.library import Library, build_dataflow
from tvm_codl.cost.sharing import SharingCost
from tvm_codl.measure.session import open_remote

ROUNDS = 10
LARGE = (1, 64, 64, 64)


def ping_pong(shape: tuple[int, ...], rounds: int) -> Dataflow:
    """GPU, CPU, GPU, CPU, ...: ``2 * rounds`` additions of one to a tensor of ``shape``, each on the other processor."""
    roots = [Root(shape, "float32", "x")]
    regions = []
    for k in range(2 * rounds):
        x = relay.var("x", shape=shape)
        function = relay.Function([x], relay.add(x, relay.const(1.0)))
        function = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
        roots.append(Root(shape, "float32"))
        processor = ("gpu", "cpu")[k % 2]
        regions.append(Region(f"{processor}_{k}", processor, "", function, [Argument(Value(k))], [Value(k + 1)]))
    return Dataflow(roots, regions, [("x", Value(0))], [Argument(Value(2 * rounds))])


def relayouts(shape: tuple[int, ...]) -> Dataflow:
    """One copy of a tensor into "channels outermost" on each processor."""
    roots, regions = [], []
    for processor in ("cpu", "gpu"):
        x = relay.var("x", shape=shape)
        function = relay.Function([x], relay.nn.relu(x))
        function = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
        roots += [Root(shape, "float32"), Root(shape, "float32", outer=len(shape) - 1)]
        inputs = [Argument(Value(len(roots) - 2))]
        regions.append(Region(f"{processor}_layout", processor, "", function, inputs, [Value(len(roots) - 1)]))
    return Dataflow(roots, regions, [], [])


def measure_sharing(phone: Any, cpu: tvm.target.Target, gpu: tvm.target.Target) -> SharingCost:
    """Medians over many runs of small programs on the phone; a few seconds, most of them for building."""
    with tempfile.TemporaryDirectory(prefix="tvm-codl-share-") as folder:

        def ready(library: Library) -> Any:
            return open_remote(phone, library.export(Path(folder) / f"share-{time.time_ns()}.so"))

        def crossing_ms(module: Any) -> float:
            module.benchmark(1, 5)
            whole = median(module.benchmark(1, 50))
            alone = sum(median(module.time_region(i, 5)) for i in range(2 * ROUNDS))
            return max(whole - alone, 0.0) / (2 * ROUNDS)

        wait = crossing_ms(ready(build_dataflow(ping_pong((1, 64), ROUNDS), cpu, gpu)))
        large = ready(build_dataflow(ping_pong(LARGE, ROUNDS), cpu, gpu))
        megabytes = 4e-6
        for extent in LARGE:
            megabytes *= extent
        large.run({"x": np.zeros(LARGE, "float32")})
        copied = large.copied_bytes > 0
        copy = max(crossing_ms(large) - wait, 0.0) / megabytes if copied else 0.0
        layout = ready(build_dataflow(relayouts(LARGE), cpu, gpu, keep_weights=False))
        relayout = max(median(layout.time_region(i, 9)) for i in range(2)) / megabytes
    return SharingCost(wait_cpu_ms=wait, wait_gpu_ms=wait, copy_ms_per_mb=copy, relayout_ms_per_mb=relayout)
