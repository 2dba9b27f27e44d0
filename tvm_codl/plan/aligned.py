"""Aligned: the cuts of an operator that follow from the cuts of the operators behind it, with halo recompute.

Where a 3x3 convolution is cut between two rows, each part reads one row of the other part's input.  If the operator before
it computes that row on both processors, nothing crosses between the two.  Each operator further up recomputes a window's
rows more.  An operator behind with stride 2 is cut at half as many rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm_codl.graph.opgraph import OpGraph, Shape
from tvm_codl.graph.split import Axis, NoSplit
from tvm_codl.plan.halo import Parts, read_parts, whole_boxes
from tvm_codl.plan.plan import Placement

#: Windows behind an operator whose halo it may recompute.
MOST_WINDOWS = 3
#: Placements of one operator that follow from those behind it.
MOST_ALIGNED = 12


def aligned(
    graph: OpGraph,
    axes: Mapping[int, Mapping[str, Axis]],
    cuts: Mapping[tuple[int, str], Sequence[int]],
    likely: Mapping[tuple[int, str], Sequence[int]],
    windows: int = MOST_WINDOWS,
    most: int = MOST_ALIGNED,
) -> dict[int, list[Placement]]:
    """By operator id, splits beside those at ``cuts``: with them the operators behind can be cut at ``likely`` places
    and read nothing of the other processor's.  Both arguments are by operator id and axis.

    Of each operator at most ``most``, with the halo of at most ``windows`` windows behind it.
    """
    maker = {tensor: operator for operator in graph.operators for tensor in operator.outputs}
    # The placements of each operator, with the number of windows whose halo they recompute.
    reached: dict[int, dict[Placement, int]] = {operator.id: {} for operator in graph.operators}
    for (id, name), places in likely.items():
        reached[id] |= {Placement("split", name, at): 0 for at in places}
    result: dict[int, list[Placement]] = {}
    known: dict[tuple[Axis, Shape, bytes, bytes], list[Placement | None]] = {}
    for operator in reversed(graph.operators):
        own = reached[operator.id]
        more = [p for p in own if any(p.over) or p.at not in cuts.get((operator.id, p.axis), ())]
        left_out = set(sorted(more, key=own.__getitem__)[most:])
        result[operator.id] = []
        for name, axis in axes.get(operator.id, {}).items():
            mine = [p for p in own if p.axis == name and p not in left_out]
            if not mine:
                continue
            try:
                read = read_parts(operator, graph, axis, mine)
            except NoSplit:
                continue
            result[operator.id] += [p for p in more if p.axis == name and p not in left_out]
            for tensor, parts in zip(operator.inputs, read, strict=True):
                if tensor not in maker:
                    continue
                before, shape = maker[tensor], graph.tensors[tensor].shape
                boxes = shape, parts.cpu.tobytes(), parts.gpu.tobytes()
                for other in axes.get(before.id, {}).values():
                    asked = (other, *boxes)
                    if asked not in known:
                        known[asked] = _cuts_alike(other, shape, parts)
                    _follow(own, reached[before.id], mine, known[asked], windows)
    return result


def _follow(
    behind: Mapping[Placement, int],
    before: dict[Placement, int],
    mine: Sequence[Placement],
    alike: Sequence[Placement | None],
    windows: int,
) -> None:
    """Adds to ``before``, an operator's placements, those that ``mine``, of an operator behind it, need."""
    for placement, wanted in zip(mine, alike, strict=True):
        if wanted is None:
            continue
        count = behind[placement] + (sum(wanted.over) > sum(placement.over))
        if count <= windows:
            before[wanted] = min(before.get(wanted, count), count)


def _cuts_alike(axis: Axis, shape: Shape, read: Parts) -> list[Placement | None]:
    """For each placement behind, the split along ``axis`` whose parts hold what it reads; None where there is none."""
    step, extent = axis.granule, axis.extent
    # A part covers the other axes.
    whole = whole_boxes(shape, 1)
    full = ((read.cpu == whole) & (read.gpu == whole)).all(axis=2)
    full[:, axis.index] = True
    end, start = -(-read.cpu[:, axis.index, 1] // step) * step, read.gpu[:, axis.index, 0] // step * step
    fits = full.all(axis=1) & (end > 0) & (end < extent) & (start > 0) & (start < extent)
    splits: list[Placement | None] = []
    for fit, hi, lo in zip(fits.tolist(), end.tolist(), start.tolist(), strict=True):
        at = (hi + lo) // 2 // step * step
        splits.append(Placement("split", axis.name, at, (max(hi - at, 0), max(at - lo, 0))) if fit else None)
    return splits
