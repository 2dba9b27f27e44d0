"""Lanes: a network drawn as a list of operators with its edges beside it, as version control draws its history."""

from __future__ import annotations

from collections.abc import Sequence


def lanes(sources: Sequence[Sequence[int]]) -> list[int]:
    """For each operator its lane, the lowest that is free; ``sources`` are the rows of those whose results it takes.

    Rows are in topological order.  A lane is taken from its operator's row to the row of the last one that takes the
    result, so that an edge may run straight down in it.
    """
    last = list(range(len(sources)))
    for row, taken in enumerate(sources):
        for source in taken:
            last[source] = max(last[source], row)
    holder: list[int] = []  # by lane, the row that has it
    chosen: list[int] = []
    for row, taken in enumerate(sources):
        free = [lane for lane, held in enumerate(holder) if last[held] <= row]
        # Straight on from an input that ends here, so that a chain stays in its lane.
        lane = min(
            (chosen[source] for source in taken if chosen[source] in free), default=min(free, default=len(holder))
        )
        if lane == len(holder):
            holder.append(row)
        holder[lane] = row
        chosen.append(lane)
    return chosen
