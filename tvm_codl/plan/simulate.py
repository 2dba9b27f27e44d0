"""Simulate: when a plan's parts start and end on two processors, as the co-executor runs them.

The co-executor works off two in-order lists, one a processor, and waits only where data crosses.  The search adds up
operators as if both processors met after each; here they do not, so a processor may run ahead of the other, branches
run side by side, and the two slow each other down for as long as both work (:mod:`tvm_codl.cost.contention`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from tvm_codl.cost.transfers import TransferCost

CPU, GPU = 0, 1
_NOTHING = 1e-9  # ms: a picosecond, what rounding leaves


class Part(msgspec.Struct, frozen=True):
    """One processor's part of an operator.

    ``ms`` alone; ``bytes`` of DRAM traffic; ``extra_ms`` for layout changes and reading from afar before it; ``after``:
    numbers of the operators whose part on the *other* processor must have ended; ``moves``: the ms that what each of these
    made takes to this processor's memory, empty where memory is unified.
    """

    ms: float
    bytes: float = 0.0
    extra_ms: float = 0.0
    after: tuple[int, ...] = ()
    moves: tuple[float, ...] = ()


class Step(msgspec.Struct, frozen=True):
    """An operator's parts; a processor without one does nothing."""

    cpu: Part | None = None
    gpu: Part | None = None


class Times(msgspec.Struct, frozen=True):
    """Milliseconds from the run's start.  ``ends[i]`` are operator i's ends on the CPU and the GPU, 0 without a part, and
    ``starts[i]`` its parts' starts.  ``waited_ms``: how long each processor waited for the other between its parts.
    """

    total_ms: float
    ends: tuple[tuple[float, float], ...]
    waited_ms: tuple[float, float]
    starts: tuple[tuple[float, float], ...] = ()


def simulate(steps: Sequence[Step], sharing: TransferCost) -> Times:
    """Simulates a run by predicted times; operators are in the graph's order.

    The total is infinite if a part's time is.  Raises :class:`ValueError` for parts that wait for each other, which those
    of a graph in order do not.
    """
    # Hot loop (a hundred plans of a hundred operators): both lists' states are plain variables.
    cpu_parts, gpu_parts = _parts([step.cpu for step in steps]), _parts([step.gpu for step in steps])
    cpu_ends, gpu_ends = ([None if s.cpu else 0.0 for s in steps], [None if s.gpu else 0.0 for s in steps])
    cpu_starts, gpu_starts = [0.0] * len(steps), [0.0] * len(steps)
    factors = sharing.contention.factors
    # What the CPU has enqueued, in ms of its time.
    fed = list(itertools.accumulate(_feeds(steps, sharing), initial=0.0))
    enqueued, signalled = 0.0, set[int]()
    to_cpu, to_gpu = _Lane(), _Lane()
    c_at = g_at = 0
    # End of a processor's last part; start of its current part; time left of that, alone.
    c_free, g_free = 0.0, sharing.start_ms if gpu_parts else 0.0
    c_begin = g_begin = c_left = g_left = c_waited = g_waited = c_traffic = g_traffic = 0.0
    c_ready = g_ready = c_new = g_new = False
    c_index = g_index = 0
    while True:
        if not c_ready and c_at < len(cpu_parts):
            c_index, part, c_traffic = cpu_parts[c_at]
            come = to_cpu.arrival(part, gpu_ends) if part.moves else _last(part.after, gpu_ends)
            if come is not None:
                c_ready = c_new = True
                c_begin, c_left = c_free, part.ms + part.extra_ms
                if fed[c_index + 1] > enqueued:
                    # It enqueues the GPU's kernels up to this operator, and then may wait.
                    c_begin += fed[c_index + 1] - enqueued
                    enqueued = fed[c_index + 1]
                if come > c_begin:
                    c_waited += come - c_begin
                    c_begin = come + sharing.wait_cpu_ms
        if not g_ready and g_at < len(gpu_parts):
            g_index, part, g_traffic = gpu_parts[g_at]
            come = to_gpu.arrival(part, cpu_ends) if part.moves else _last(part.after, cpu_ends)
            if come is not None:
                g_ready = g_new = True
                g_begin, g_left = g_free, part.ms + part.extra_ms
                if g_at:
                    g_begin += sharing.launch_ms
                if come > g_free:
                    g_waited += come - g_free
                    g_begin = come + sharing.wait_gpu_ms
                    for i in part.after:
                        # Releasing a sleeping GPU costs CPU time, unless something else woke it.
                        end = cpu_ends[i]
                        if (end == come or part.moves) and i not in signalled:
                            signalled.add(i)
                            if not c_ready:
                                c_free += sharing.signal_ms
                            elif end is not None and c_begin >= end:
                                c_begin += sharing.signal_ms
        # Both work, or one works until it is done or the other begins.  An infinite part ends at infinity; what is left of
        # it is NaN then.
        c_works = c_ready and not (g_ready and g_begin < c_begin)
        g_works = g_ready and not (c_ready and c_begin < g_begin)
        if c_works and g_works:
            now = c_begin
            c_slow, g_slow = factors(c_traffic, g_traffic)
            until = min(now + c_left * c_slow, now + g_left * g_slow)
        elif c_works:
            now, c_slow = c_begin, 1.0
            until = min(now + c_left, g_begin) if g_ready else now + c_left
        elif g_works:
            now, g_slow = g_begin, 1.0
            until = min(now + g_left, c_begin) if c_ready else now + g_left
        else:
            break
        if c_works:
            if c_new:
                cpu_starts[c_index], c_new = now, False
            c_left -= (until - now) / c_slow
            c_begin = until
            if not c_left > _NOTHING:
                cpu_ends[c_index] = c_free = until
                c_ready, c_at = False, c_at + 1
        if g_works:
            if g_new:
                gpu_starts[g_index], g_new = now, False
            g_left -= (until - now) / g_slow
            g_begin = until
            if not g_left > _NOTHING:
                gpu_ends[g_index] = g_free = until
                g_ready, g_at = False, g_at + 1
    unfinished = [index for index, _, _ in (*cpu_parts[c_at:], *gpu_parts[g_at:])]
    if unfinished:
        raise ValueError(f"the parts of operators {unfinished} wait for each other")
    c_free += fed[-1] - enqueued
    ends = tuple((c or 0.0, g or 0.0) for c, g in zip(cpu_ends, gpu_ends, strict=True))
    return Times(max(c_free, g_free), ends, (c_waited, g_waited), tuple(zip(cpu_starts, gpu_starts, strict=True)))


class _Lane:
    """Moves to one processor's memory, one after the other and beside both processors' work.

    What an operator made moves once, however many parts need it.
    """

    def __init__(self) -> None:
        self._free_ms, self._arrived = 0.0, dict[int, float]()

    def arrival(self, part: Part, ends: Sequence[float | None]) -> float | None:
        """When the last of what ``part`` needs is there; None while it is not made."""
        last = 0.0
        for i, move in zip(part.after, part.moves, strict=True):
            if i not in self._arrived:
                end = ends[i]
                if end is None:
                    return None
                self._free_ms = self._arrived[i] = max(end, self._free_ms) + move
            last = max(last, self._arrived[i])
        return last


def _feeds(steps: Sequence[Step], sharing: TransferCost) -> list[float]:
    """For each operator the CPU's time to enqueue what the GPU does for it."""
    kernels = [0.0 if step.gpu is None else sharing.feed_ms for step in steps]
    if not sharing.move_feed_ms:
        return kernels
    moves = [sum(len(part.moves) for part in (step.cpu, step.gpu) if part is not None) for step in steps]
    return [kernel + sharing.move_feed_ms * count for kernel, count in zip(kernels, moves, strict=True)]


def _parts(parts: Sequence[Part | None]) -> list[tuple[int, Part, float]]:
    """One processor's parts, in order, with their operators' numbers and their traffic in bytes per ms."""
    return [(i, part, part.bytes / part.ms if part.ms > 0 else 0.0) for i, part in enumerate(parts) if part is not None]


def _last(after: tuple[int, ...], ends: Sequence[float | None]) -> float | None:
    """The latest of some parts' ends, None while one of them has not ended."""
    last = 0.0
    for i in after:
        end = ends[i]
        if end is None:
            return None
        if end > last:
            last = end
    return last
