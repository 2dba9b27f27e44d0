"""Which buffers of a program are never needed at the same time, and a place for each in one piece of memory.

Two in-order lists run at once, and meet only where one waits for an event of the other.  So "before" is a partial order:
a step is before the later ones of its own list, and the steps up to a signal are before those from its wait on.  Two
buffers may share memory only where everything that touches one is before everything that touches the other.  Nothing
here adds a wait.

Imports no TVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NONE = -1


@dataclass(frozen=True)
class Step:
    """One step of a list: the buffers that it reads or writes, or the event that it waits for or signals."""

    touches: tuple[int, ...] = ()
    waits: int = NONE
    signals: int = NONE


@dataclass(frozen=True)
class Span:
    """A buffer's first and last step in each of the two lists; (-1, -1) where the list does not touch it."""

    first: tuple[int, int]
    last: tuple[int, int]


class Order:
    """What is before what in two lists.  Raises :class:`ValueError` for a wait without a signal in the other list."""

    def __init__(self, lists: tuple[Sequence[Step], Sequence[Step]]) -> None:
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
        self.spans = _spans(lists)

    def before(self, a: int, b: int) -> bool:
        """Whether all that touches buffer ``a`` is done before anything touches ``b``."""
        one, other = self.spans.get(a), self.spans.get(b)
        if one is None or other is None:
            return False
        for mine in (0, 1):
            first = other.first[mine]
            if first != NONE and (one.last[mine] >= first or one.last[1 - mine] >= self.done[mine][first]):
                return False
        return True

    def apart(self, a: int, b: int) -> bool:
        """Whether two buffers may share memory."""
        return self.before(a, b) or self.before(b, a)


def _spans(lists: tuple[Sequence[Step], Sequence[Step]]) -> dict[int, Span]:
    first: dict[int, list[int]] = {}
    last: dict[int, list[int]] = {}
    for mine, steps in enumerate(lists):
        for at, step in enumerate(steps):
            for buffer in step.touches:
                start = first.setdefault(buffer, [NONE, NONE])
                start[mine] = at if start[mine] == NONE else start[mine]
                last.setdefault(buffer, [NONE, NONE])[mine] = at
    return {b: Span((start[0], start[1]), (last[b][0], last[b][1])) for b, start in first.items()}


def places(order: Order, sizes: Mapping[int, int], alignment: int) -> dict[int, int]:
    """For each buffer of ``sizes`` (bytes) its offset in a common memory, a multiple of ``alignment``.

    Buffers whose ranges overlap are apart.  One that no step touches is apart from none.  Greedy by falling size: each lies
    as low as those before it allow.
    """
    found: dict[int, int] = {}
    for buffer in sorted(sizes, key=lambda b: (-sizes[b], b)):
        taken = sorted((found[b], found[b] + sizes[b]) for b in found if not order.apart(buffer, b))
        at = 0
        for low, high in taken:
            if low - at >= sizes[buffer]:
                break
            at = max(at, -(-high // alignment) * alignment)
        found[buffer] = at
    return found
