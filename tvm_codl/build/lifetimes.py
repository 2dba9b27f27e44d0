"""Finds bytes of a program's buffers that are never needed at the same time, and places all buffers in one memory.

Two in-order lists run at once and meet only where one waits for an event of the other.  So "before" is a partial order: a
step is before the later ones of its own list, and the steps up to a signal are before those after its wait.  Two bytes may
share memory only if everything that touches one is before everything that touches the other.  Nothing here adds a wait.

A tensor that both processors write is divided where the steps' views of it begin and end.  In a chain, each processor's
part of a tensor follows its part of an earlier one without a wait; only the few rows that the other processor reads must
stay longer.  So a tensor may take the place of one that is still partly needed.

Imports no TVM.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

NONE = -1
#: Orders of placing to try, and how close to the lower bound (as a factor) the best must be to stop.
TRIES, CLOSE = 64, 1.002
#: The number of largest parts from which the lower bound is computed.
SEEDS = 32
#: The weight factor of the topmost buffer in the next order, and the random spread of weights (a power of 2).
BLAME, SPREAD = 1.5, 0.4


@dataclass(frozen=True)
class Touch:
    """Bytes ``lo:hi`` of a buffer, read or written."""

    buffer: int
    lo: int
    hi: int


@dataclass(frozen=True)
class Step:
    """One step of a list: the bytes it reads or writes, or the event it waits for or signals."""

    touches: tuple[Touch, ...] = ()
    waits: int = NONE
    signals: int = NONE


@dataclass(frozen=True)
class Part:
    """Bytes ``lo:hi`` of a buffer that the same steps touch.

    ``last`` is the last such step of each list, -1 for none; ``before`` is the number of steps of each list that are
    certainly done when the first such step begins.
    """

    buffer: int
    lo: int
    hi: int
    last: tuple[int, int]
    before: tuple[int, int]

    def follows(self, other: Part) -> bool:
        """Whether all steps that touch ``other`` are done before any step touches this."""
        return other.last[0] < self.before[0] and other.last[1] < self.before[1]


class Order:
    """The partial order of two lists.  Raises :class:`ValueError` for a wait without a signal in the other list."""

    def __init__(self, lists: tuple[Sequence[Step], Sequence[Step]]) -> None:
        self.lists = lists
        signalled = [{s.signals: at for at, s in enumerate(steps) if s.signals != NONE} for steps in lists]
        # done[l][i]: the number of steps of the other list that are certainly done when step i of list l begins.
        self.done: tuple[list[int], list[int]] = ([], [])
        for mine, steps in enumerate(lists):
            done = 0
            for step in steps:
                if step.waits != NONE:
                    if step.waits not in signalled[1 - mine]:
                        raise ValueError(f"a wait for event {step.waits}, which the other list does not signal")
                    done = max(done, signalled[1 - mine][step.waits] + 1)
                self.done[mine].append(done)

    def parts(self, sizes: Mapping[int, int]) -> list[Part]:
        """The buffers of ``sizes`` (bytes), divided.  A part that no step touches follows no other, and no other follows it."""
        edges = {buffer: {0, size} for buffer, size in sizes.items()}
        touches = [
            (mine, at, touch)
            for mine, steps in enumerate(self.lists)
            for at, step in enumerate(steps)
            for touch in step.touches
            if touch.buffer in sizes
        ]
        for _, _, touch in touches:
            edges[touch.buffer] |= {touch.lo, touch.hi}
        cuts = {buffer: sorted(bounds) for buffer, bounds in edges.items()}
        # By buffer and the byte where a part begins: the steps of each list that touch it.
        touched_by: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        for mine, at, touch in touches:
            bounds = cuts[touch.buffer]
            for lo in bounds[bisect_left(bounds, touch.lo) : bisect_left(bounds, touch.hi)]:
                touched_by.setdefault((touch.buffer, lo), ([], []))[mine].append(at)
        parts: list[Part] = []
        for buffer, bounds in cuts.items():
            for lo, hi in pairwise(bounds):
                part = self._part(buffer, lo, hi, touched_by.get((buffer, lo), ([], [])))
                if lo != 0 and (parts[-1].last, parts[-1].before) == (part.last, part.before):
                    part = Part(buffer, parts.pop().lo, hi, part.last, part.before)
                parts.append(part)
        return parts

    def _part(self, buffer: int, lo: int, hi: int, steps: tuple[list[int], list[int]]) -> Part:
        """``steps`` of each list, in order, that touch these bytes."""
        touching = [(mine, own[0]) for mine, own in enumerate(steps) if own]
        if not touching:
            return Part(buffer, lo, hi, (len(self.lists[0]), len(self.lists[1])), (NONE, NONE))
        before = [min(at if m == mine else self.done[m][at] for m, at in touching) for mine in (0, 1)]
        last = [own[-1] if own else NONE for own in steps]
        return Part(buffer, lo, hi, (last[0], last[1]), (before[0], before[1]))


class _Table:
    """The parts as columns, and which pairs must not overlap."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.lo = np.array([p.lo for p in parts], dtype=np.int64)
        self.hi = np.array([p.hi for p in parts], dtype=np.int64)
        last = np.array([p.last for p in parts], dtype=np.int64)
        before = np.array([p.before for p in parts], dtype=np.int64)
        follows = (last[:, None, :] < before[None, :, :]).all(axis=2)
        self.clash = np.logical_not(np.logical_or(follows, follows.T))
        self.rows: dict[int, list[int]] = {}
        for row, part in enumerate(parts):
            self.rows.setdefault(part.buffer, []).append(row)

    def place(self, order: Sequence[int], alignment: int) -> dict[int, int]:
        """Places each buffer, in that order, as low as the earlier ones allow."""
        offsets: dict[int, int] = {}
        start = np.full(len(self.lo), NONE, dtype=np.int64)
        for buffer in order:
            taken = np.flatnonzero(start >= 0)
            # A buffer at x must not be in any of these open ranges of x.
            banned: list[tuple[int, int]] = []
            for row in self.rows[buffer]:
                near = taken[self.clash[row, taken]]
                low = start[near] + self.lo[near] - self.hi[row]
                high = start[near] + self.hi[near] - self.lo[row]
                banned += zip(low.tolist(), high.tolist(), strict=True)
            at = 0
            for low, high in sorted(banned):
                if at <= low:
                    break
                if at < high:
                    at = -(-high // alignment) * alignment
            offsets[buffer] = at
            start[self.rows[buffer]] = at
        return offsets

    def lower_bound(self) -> int:
        """Bytes that any placement needs: the largest clique found of clashing parts."""
        sizes = self.hi - self.lo
        falling = np.argsort(-sizes, kind="stable")
        most = 0
        for seed in falling[:SEEDS].tolist():
            free = self.clash[seed].copy()
            free[seed] = False
            held = int(sizes[seed])
            for row in falling.tolist():
                if free[row]:
                    held += int(sizes[row])
                    free &= self.clash[row]
                    free[row] = False
            most = max(most, held)
        return most


def place_buffers(order: Order, sizes: Mapping[int, int], alignment: int) -> dict[int, int]:
    """Each buffer's offset in a common memory, a multiple of ``alignment``; ``sizes`` are in bytes.

    Bytes of two buffers overlap only where one's part follows the other's.  Greedy by falling size (Pisarchyk and Lee,
    "Efficient Memory Management for Deep Neural Net Inference", 2020); above the lower bound, retried with the topmost
    buffer earlier (Joslin and Clements, "Squeaky Wheel Optimization", 1999) and with seeded chance.  The lowest wins.
    """
    if not sizes:
        return {}
    table = _Table(order.parts(sizes))
    enough = CLOSE * table.lower_bound()
    chance = random.Random(0)
    weight = {b: float(size) for b, size in sizes.items()}
    turn = sorted(sizes, key=lambda b: (-sizes[b], b))
    best: dict[int, int] = {}
    least = 0
    for _ in range(TRIES):
        offsets = table.place(turn, alignment)
        top = max(turn, key=lambda b: (offsets[b] + sizes[b], -b))
        height = offsets[top] + sizes[top]
        if not best or height < least:
            best, least = offsets, height
        if least <= enough:
            break
        weight[top] *= BLAME
        drawn = {b: weight[b] * 2.0 ** chance.uniform(-SPREAD, SPREAD) for b in sizes}
        turn = sorted(sizes, key=lambda b: (-drawn[b], b))
    return best
