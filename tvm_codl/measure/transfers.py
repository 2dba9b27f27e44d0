"""Measures what sharing costs on a phone: waits, launches, copies, reading from afar, joining pieces, contention.

Small programs run on the phone as a network would, and their timelines say how long each processor did nothing and why.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tvm import relay

from tvm_codl.build.dataflow import Argument, Dataflow
from tvm_codl.build.kernel_cache import KernelCache
from tvm_codl.build.library import Library, build_dataflow
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.kernels.toolchain import Toolchain
from tvm_codl.measure.contention import Program, increment, kernels, measure_contention
from tvm_codl.measure.worker import open_remote

ROUNDS = 8
RUNS = 25
#: A kernel on a tensor of this size takes longer than an idle GPU takes to fall asleep.
LARGE = (1, 64, 64, 64)
#: Fits a core's own cache, and is read at once.
NEAR = (1, 64, 64, 16)

Span = dict[str, Any]


def chain(shape: tuple[int, ...], processors: Sequence[str]) -> Dataflow:
    """One after the other, each on its processor: additions of one to a tensor of ``shape``."""
    program = Program()
    x = last = program.tensor(shape, "x")
    for k, processor in enumerate(processors):
        last = program.add(f"{processor}_{k}", processor, increment, last)
    return Dataflow(program.roots, program.regions, [("x", x)], [Argument(last)])


def ping_pong(shape: tuple[int, ...], rounds: int) -> Dataflow:
    """GPU, CPU, GPU, CPU, ...: ``2 * rounds`` additions, each on the other processor."""
    return chain(shape, ("gpu", "cpu") * rounds)


def readers(shape: tuple[int, ...], rounds: int) -> Dataflow:
    """Each round, a tensor written on either processor and read on the other one by a kernel that writes little.

    Regions are named by who reads: ``cpu_read_0``, ``gpu_read_0``, ...
    """
    program = Program()
    x = last = program.tensor(shape, "x")
    pool = partial(relay.nn.max_pool2d, pool_size=(2, 2), strides=(2, 2), layout="NHWC")
    for k in range(rounds):
        for writer, reader in (("gpu", "cpu"), ("cpu", "gpu")):
            written = program.add(f"{writer}_write_{k}", writer, increment, x)
            last = program.add(f"{reader}_read_{k}", reader, pool, written)
    return Dataflow(program.roots, program.regions, [("x", x)], [Argument(last)])


def joins(shape: tuple[int, ...]) -> Dataflow:
    """Two pieces of a tensor of ``shape``, cut along its channels, joined on each processor."""
    program = Program()
    piece = (*shape[:-1], shape[-1] // 2)
    for processor in ("cpu", "gpu"):
        pieces = program.tensor(piece), program.tensor(piece)
        program.add(f"{processor}_join", processor, lambda *given: relay.concatenate(given, axis=-1), *pieces)
    return Dataflow(program.roots, program.regions, [], [])


#: What every phone runs, beside the kernels of contention.
PROGRAMS: dict[str, Callable[[], Dataflow]] = {
    "joins": partial(joins, LARGE),
    "passes": partial(ping_pong, LARGE, ROUNDS),
    "queue": partial(chain, NEAR, ("gpu",) * 2 * ROUNDS),
    "readers": partial(readers, NEAR, ROUNDS // 2),
}


def compile_programs(tools: Toolchain) -> None:
    """Compiles the programs of :func:`measure_transfers`, which finds their kernels in the cache then."""
    for flow in (*(program() for program in PROGRAMS.values()), kernels()[0]):
        _build(flow, tools)


def _build(flow: Dataflow, tools: Toolchain) -> Library:
    with tools.scheduled():
        return build_dataflow(flow, tools.cpu, tools.gpu, keep_weights=False, cache=KernelCache(tools.build_id))


def measure_transfers(phone: Any, tools: Toolchain) -> TransferCost:
    """Medians over many runs of small programs on the phone; a few seconds.

    Waits and joins are the least of three looks between which others are built: on a core that somebody else has for a
    moment, a wait takes a hundred times as long, and every plan would be the better processor alone.
    """
    with tempfile.TemporaryDirectory(prefix="tvm-codl-share-") as folder:

        def ready(flow: Dataflow) -> Any:
            return open_remote(phone, _build(flow, tools).export(Path(folder) / f"share-{time.time_ns()}.so"))

        def runs(flow: Dataflow) -> tuple[Any, list[list[Span]]]:
            module = ready(flow)
            module.run({"x": np.zeros(flow.roots[0].shape, "float32")})
            return module, look(module)

        def look(module: Any) -> list[list[Span]]:
            return [module.timeline() for _ in range(RUNS)][1:]

        def join_ms() -> float:
            return max(median(joining.time_region(i, 9)) for i in range(2))

        joining = ready(PROGRAMS["joins"]())
        passing, crossed = runs(PROGRAMS["passes"]())
        looks, joined = [crossed], [join_ms()]
        lone, queued = runs(PROGRAMS["queue"]())
        looks, joined = [*looks, look(passing)], [*joined, join_ms()]
        far_module, far = runs(PROGRAMS["readers"]())
        looks, joined = [*looks, look(passing)], [*joined, join_ms()]
        wait_cpu, wait_gpu = waits(looks)
        feed = median(_each(run, "feed", 2 * ROUNDS) for run in queued)
        begin = median(start(run) for run in queued)
        signal = median(_each(run, "signal") for run in crossed)
        launch, to_cpu, to_gpu, move_feed = median(pauses(run, "gpu", "gpu") for run in queued), 0.0, 0.0, 0.0
        if passing.copied_bytes:
            # Moves lie in the pauses, and the waits are what is left of them in a chain of small tensors.
            _, small = runs(ping_pong((1, 64), ROUNDS))
            large = wait_cpu, wait_gpu
            wait_cpu, wait_gpu = waits([small])
            to_cpu, to_gpu = (
                max(whole - wait, 0.0) / _megabytes(LARGE)
                for whole, wait in zip(large, (wait_cpu, wait_gpu), strict=True)
            )
            move_feed = median(feed_beside(run, feed, "gpu") for run in small)
            launch = 0.0  # an operator is timed in a row of its runs there (coexec/region_time.cc): that has the pauses
            # Where kernels are profiled, as in a timeline, it takes three times as long to enqueue one, and longer to
            # begin: two runs without a timeline tell both.
            twice, _ = runs(chain(NEAR, ("gpu",) * 4 * ROUNDS))
            each, rest = kernel_and_rest(_fastest(lone), _fastest(twice), 2 * ROUNDS)
            ends = wait_cpu + (to_cpu + to_gpu) * _megabytes(NEAR)
            feed, begin = min(feed, each), min(begin, max(rest - ends, 0.0))
        else:
            signal += median(feed_beside(run, feed, "cpu") for run in crossed)
        return TransferCost(
            wait_cpu_ms=wait_cpu,
            wait_gpu_ms=wait_gpu,
            join_ms_per_mb=min(joined) / _megabytes(LARGE),
            far_cpu_ms_per_mb=_far(far_module, far, "cpu") / _megabytes(NEAR),
            far_gpu_ms_per_mb=_far(far_module, far, "gpu") / _megabytes(NEAR),
            signal_ms=signal,
            feed_ms=feed,
            launch_ms=launch,
            start_ms=begin,
            to_cpu_ms_per_mb=to_cpu,
            to_gpu_ms_per_mb=to_gpu,
            move_feed_ms=move_feed,
            contention=measure_contention(ready),
        )


_PASSING = (("cpu", "gpu"), ("gpu", "cpu"))


def waits(looks: Sequence[Sequence[Sequence[Span]]]) -> tuple[float, float]:
    """Milliseconds of the CPU's waits and of the GPU's: the least of the looks' medians over their runs."""
    cpu, gpu = (min(median(pauses(run, on, after) for run in runs) for runs in looks) for on, after in _PASSING)
    return cpu, gpu


def pauses(run: Iterable[Span], processor: str, after: str) -> float:
    """Milliseconds, the median over the kernels of ``processor`` but the first: from the end of the last kernel that
    ``after`` ended before, until it starts.  0 for a run without such kernels."""
    kernels = sorted((s for s in run if s["kind"] == "kernel"), key=lambda s: s["start_us"])
    waits = [
        max(next["start_us"] - before["end_us"], 0.0) / 1e3
        for before, next in itertools.pairwise(kernels)
        if before["processor"] == after and next["processor"] == processor
    ]
    return median(waits) if waits else 0.0


def start(run: Iterable[Span]) -> float:
    """Milliseconds from the run's first event until the GPU's first kernel."""
    spans = list(run)
    first = min((s["start_us"] for s in spans if s["processor"] == "gpu"), default=0.0)
    return (first - min(s["start_us"] for s in spans)) / 1e3


def kernel_and_rest(once_ms: float, twice_ms: float, kernels: int) -> tuple[float, float]:
    """Milliseconds of one kernel, and of what a run takes beside its kernels, by a run of so many and one of twice as many."""
    return max(twice_ms - once_ms, 0.0) / kernels, max(2 * once_ms - twice_ms, 0.0)


def _each(run: Iterable[Span], name: str, count: int = 0) -> float:
    """Milliseconds, the mean over the events of this name, or over ``count`` things that they did."""
    lengths = [s["end_us"] - s["start_us"] for s in run if s["kind"] == "share" and s["name"] == name]
    return sum(lengths) / (count or len(lengths) or 1) / 1e3


def _fastest(module: Any) -> float:
    """Milliseconds of a run without a timeline."""
    return float(min(module.benchmark(RUNS, ROUNDS)))


def feed_beside(run: Sequence[Span], feed_ms: float, by: str) -> float:
    """Milliseconds to enqueue what is no kernel, which takes ``feed_ms``: for each move (``by`` "gpu") or, where nothing
    moves, for each of the CPU's signals (``by`` "cpu"), as the GPU's list waits for it in a command of its own."""
    kernels = sum(s["processor"] == "gpu" and s["kind"] == "kernel" for s in run)
    others = sum(s["processor"] == by and s["kind"] == "share" and s["name"] != "feed" for s in run)
    return max(_each(run, "feed", 1) - kernels * feed_ms, 0.0) / max(others, 1)


def _far(module: Any, runs: Sequence[Iterable[Span]], processor: str) -> float:
    """Milliseconds that a read of what the other processor wrote takes longer than alone."""
    names = [r.name for r in module.about.regions]
    index = names.index(f"{processor}_read_1")
    alone = median(module.time_region(index, 15, 0.0))
    inside = median(
        s["end_us"] - s["start_us"] for run in runs for s in run if s["region"].startswith(f"{processor}_read")
    )
    return max(inside / 1e3 - alone, 0.0)


def _megabytes(shape: tuple[int, ...]) -> float:
    return float(np.prod(shape)) * 4e-6
