"""Aligned: the cuts of an operator that follow from the cuts of those behind it, with the overlaps that their halos need.

Where a 3x3 convolution is cut between two rows, each of its parts reads a row that is the other one's by rights.  If the
operator before makes both rows on both processors, nothing crosses between the two; and so on, a window's rows more for
each operator further up.  Where the operator behind has a stride, its cut is one at twice as many rows here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tvm_codl.graph.opgraph import OpGraph, Shape
from tvm_codl.graph.split import Axis, NoSplit
from tvm_codl.plan.halo import Boxes, read_boxes, whole_boxes
from tvm_codl.plan.plan import Placement

#: Windows behind an operator whose rows it may make twice.
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
    """By operator id, splits beside those at ``cuts``, so that the operators behind may be cut at ``likely`` places
    without taking anything from the other processor.  Both are by operator id and axis.

    No more than ``most`` of one operator, with the rows of no more than ``windows`` windows behind it.
    """
    maker = {tensor: operator for operator in graph.operators for tensor in operator.outputs}
    #: Each with the number of windows behind whose rows it has.
    reached: dict[int, dict[Placement, int]] = {operator.id: {} for operator in graph.operators}
    for (id, name), places in likely.items():
        reached[id] |= {Placement("split", name, at): 0 for at in places}
    found: dict[int, list[Placement]] = {}
    for operator in reversed(graph.operators):
        own = reached[operator.id]
        more = [p for p in own if any(p.over) or p.at not in cuts.get((operator.id, p.axis), ())]
        left_out = set(sorted(more, key=own.__getitem__)[most:])
        found[operator.id] = []
        for name, axis in axes.get(operator.id, {}).items():
            mine = [p for p in own if p.axis == name and p not in left_out]
            if not mine:
                continue
            ends = np.array([p.parts(axis.extent) for p in mine], dtype=np.int64)
            try:
                read = read_boxes(operator, graph, axis, ends[:, :, 0].T.ravel(), ends[:, :, 1].T.ravel())
            except NoSplit:
                continue
            found[operator.id] += [p for p in more if p.axis == name and p not in left_out]
            for tensor, both in zip(operator.inputs, read, strict=True):
                if tensor not in maker:
                    continue
                before, shape = maker[tensor], graph.tensors[tensor].shape
                for other in axes.get(before.id, {}).values():
                    _follow(own, reached[before.id], mine, _cuts_alike(other, shape, both), windows)
    return found


def _follow(
    behind: Mapping[Placement, int],
    before: dict[Placement, int],
    mine: Sequence[Placement],
    alike: Sequence[Placement | None],
    windows: int,
) -> None:
    """Adds to an operator's placements ``before`` those that ``mine``, of an operator behind it, need."""
    for placement, wanted in zip(mine, alike, strict=True):
        if wanted is None:
            continue
        count = behind[placement] + (sum(wanted.over) > sum(placement.over))
        if count <= windows:
            before[wanted] = min(before.get(wanted, count), count)


def _cuts_alike(axis: Axis, shape: Shape, read: Boxes) -> list[Placement | None]:
    """For each pair of boxes, the CPU's in the first half of ``read`` and the GPU's in the second, the split along
    ``axis`` whose parts hold them; None where there is none."""
    count, step, extent = len(read) // 2, axis.granule, axis.extent
    # Along the other axes a part is everything.
    others = np.delete(read, axis.index, axis=1)
    full = (others == whole_boxes(shape[: axis.index] + shape[axis.index + 1 :], 1)).all(axis=(1, 2))
    ends = read[:, axis.index]
    end, start = -(-ends[:count, 1] // step) * step, ends[count:, 0] // step * step
    fits = full[:count] & full[count:] & (end > 0) & (end < extent) & (start > 0) & (start < extent)
    found: list[Placement | None] = []
    for fit, hi, lo in zip(fits.tolist(), end.tolist(), start.tolist(), strict=True):
        at = (hi + lo) // 2 // step * step
        found.append(Placement("split", axis.name, at, (max(hi - at, 0), max(at - lo, 0))) if fit else None)
    return found
