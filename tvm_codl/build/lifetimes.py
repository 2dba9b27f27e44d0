"""Which bytes of a program's buffers are never needed at the same time, and a place for each buffer in one memory.

Two in-order lists run at once, and meet only where one waits for an event of the other.  So "before" is a partial order:
a step is before the later ones of its own list, and the steps up to a signal are before those from its wait on.  Two
bytes may share memory only where everything that touches one is before everything that touches the other.  Nothing
here adds a wait.

A tensor that both processors write is taken apart where the steps' views of it begin and end.  Within a chain each
processor's part of a tensor follows that processor's part of an earlier one without a wait; only the few rows that the
other one reads must stay until it has.  So a tensor may take the place of one that, as a whole, is still needed.

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
#: How many orders of placing are tried, and when the best is good enough: so many times what nothing can be below.
TRIES, CLOSE = 64, 1.002
#: From how many of the largest parts that bound is sought.
SEEDS = 32
#: What sticks out counts so much more in the next order; and chance makes sizes differ by up to 2 to this power.
BLAME, SPREAD = 1.5, 0.4


@dataclass(frozen=True)
class Touch:
    """Bytes ``lo:hi`` of a buffer, read or written."""

    buffer: int
    lo: int
    hi: int


@dataclass(frozen=True)
class Step:
    """One step of a list: what it reads or writes, or the event that it waits for or signals."""

    touches: tuple[Touch, ...] = ()
    waits: int = NONE
    signals: int = NONE


@dataclass(frozen=True)
class Part:
    """Bytes ``lo:hi`` of a buffer, which the same steps touch.

    ``last`` is the last step of each list that does, -1 where none; ``before`` is how many steps of each list are surely
    done when the first one does.
    """

    buffer: int
    lo: int
    hi: int
    last: tuple[int, int]
    before: tuple[int, int]

    def follows(self, other: Part) -> bool:
        """Whether all that touches ``other`` is done before anything touches this."""
        return other.last[0] < self.before[0] and other.last[1] < self.before[1]


class Order:
    """What is before what in two lists.  Raises :class:`ValueError` for a wait without a signal in the other list."""

    def __init__(self, lists: tuple[Sequence[Step], Sequence[Step]]) -> None:
        self.lists = lists
        signalled = [{s.signals: at for at, s in enumerate(steps) if s.signals != NONE} for steps in lists]
        # done[l][i]: how many steps of the other list are surely done when step i of list l begins.  The way from one
        # list to the other is always a single signal: whoever comes back over another one was there before.
        self.done: tuple[list[int], list[int]] = ([], [])
        for mine, steps in enumerate(lists):
            known = 0
            for step in steps:
                if step.waits != NONE:
                    if step.waits not in signalled[1 - mine]:
                        raise ValueError(f"a wait for event {step.waits}, which the other list does not signal")
                    known = max(known, signalled[1 - mine][step.waits] + 1)
                self.done[mine].append(known)

    def parts(self, sizes: Mapping[int, int]) -> list[Part]:
        """The buffers of ``sizes`` (bytes), taken apart.  Bytes that no step touches follow nothing, and nothing them."""
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
        cuts = {buffer: sorted(found) for buffer, found in edges.items()}
        first: dict[tuple[int, int], list[int]] = {}  # by buffer and the byte where a part begins
        last: dict[tuple[int, int], list[int]] = {}
        for mine, at, touch in touches:
            bounds = cuts[touch.buffer]
            for lo in bounds[bisect_left(bounds, touch.lo) : bisect_left(bounds, touch.hi)]:
                begun = first.setdefault((touch.buffer, lo), [NONE, NONE])
                begun[mine] = at if begun[mine] == NONE else begun[mine]
                last.setdefault((touch.buffer, lo), [NONE, NONE])[mine] = at
        found: list[Part] = []
        for buffer, bounds in cuts.items():
            for lo, hi in pairwise(bounds):
                part = self._part(buffer, lo, hi, first.get((buffer, lo)), last.get((buffer, lo)))
                if lo != 0 and (found[-1].last, found[-1].before) == (part.last, part.before):
                    part = Part(buffer, found.pop().lo, hi, part.last, part.before)
                found.append(part)
        return found

    def _part(self, buffer: int, lo: int, hi: int, first: list[int] | None, last: list[int] | None) -> Part:
        if first is None or last is None:
            return Part(buffer, lo, hi, (len(self.lists[0]), len(self.lists[1])), (NONE, NONE))
        begun = [mine for mine in (0, 1) if first[mine] != NONE]
        before = [min(first[m] if m == mine else self.done[m][first[m]] for m in begun) for mine in (0, 1)]
        return Part(buffer, lo, hi, (last[0], last[1]), (before[0], before[1]))


class _Table:
    """The parts as columns, and which two of them must not overlap."""

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

    def placed(self, order: Sequence[int], alignment: int) -> dict[int, int]:
        """Each buffer, in that order, as low as those before it allow."""
        found: dict[int, int] = {}
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
            found[buffer] = at
            start[self.rows[buffer]] = at
        return found

    def bound(self) -> int:
        """Bytes that any placing needs: the largest found of parts that all clash with one another."""
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


def places(order: Order, sizes: Mapping[int, int], alignment: int) -> dict[int, int]:
    """For each buffer of ``sizes`` (bytes) its offset in a common memory, a multiple of ``alignment``.

    Bytes of two buffers overlap only where one's part follows the other's.  Greedy by falling size (Pisarchyk and Lee,
    "Efficient Memory Management for Deep Neural Net Inference", 2020).  Where that is above the bound, again with the
    buffer that stuck out earlier (Joslin and Clements, "Squeaky Wheel Optimization", 1999) and some chance, always the
    same.  The lowest is taken.
    """
    if not sizes:
        return {}
    table = _Table(order.parts(sizes))
    enough = CLOSE * table.bound()
    chance = random.Random(0)
    weight = {b: float(size) for b, size in sizes.items()}
    turn = sorted(sizes, key=lambda b: (-sizes[b], b))
    best: dict[int, int] = {}
    least = 0
    for _ in range(TRIES):
        found = table.placed(turn, alignment)
        top = max(turn, key=lambda b: (found[b] + sizes[b], -b))
        height = found[top] + sizes[top]
        if not best or height < least:
            best, least = found, height
        if least <= enough:
            break
        weight[top] *= BLAME
        drawn = {b: weight[b] * 2.0 ** chance.uniform(-SPREAD, SPREAD) for b in sizes}
        turn = sorted(sizes, key=lambda b: (-drawn[b], b))
    return best
