"""Split rules of operators that move data: concatenation, padding, slicing, transposing, reshaping."""

from __future__ import annotations

from math import prod

from tvm_codl.graph.many import lower, upper
from tvm_codl.graph.rule import HEAVY, MOVING, Answer, Case, NoSplit, at_multiples, axis_of, letters, rule
from tvm_codl.graph.slab import Slab


@rule("concatenate", weight=MOVING)
def concatenate(case: Case, want: Slab) -> Answer:
    """Along its own axis a piece reads from some arguments a part, from others nothing."""
    if axis_of(case.attrs["axis"], len(case.result)) != want.axis:
        return Answer((want,) * len(case.args))
    parts, start = [], 0
    for shape in case.args:
        extent = shape[want.axis]
        lo, hi = (lower(upper(edge - start, 0), extent) for edge in (want.lo, want.hi))
        parts.append(Slab(want.axis, lo, hi))
        start += extent
    return Answer(tuple(parts))


@rule("stack", weight=MOVING)
def stack(case: Case, want: Slab) -> Answer:
    new = axis_of(case.attrs["axis"], len(case.result))
    if want.axis == new:
        raise NoSplit("the new axis of a stack")
    axis = want.axis - (want.axis > new)
    return Answer((Slab(axis, want.lo, want.hi),) * len(case.args))


@rule("nn.pad", weight=MOVING)
def pad(case: Case, want: Slab) -> Answer:
    """Padding stays only at the true border; a reflected one needs as many rows beside it."""
    axis, mode = want.axis, case.attrs["pad_mode"]
    extent = case.args[0][axis]
    before = case.attrs["pad_width"][axis][0]
    if before < 0 or case.attrs["pad_width"][axis][1] < 0:
        raise NoSplit("padding is negative")
    lo, hi = upper(want.lo - before, 0), lower(want.hi - before, extent)
    head, tail = upper(before - want.lo, 0), upper(want.hi - before - extent, 0)
    if mode == "reflect" and head:
        lo, hi = 0, max(hi, min(extent, head + 1))
    if mode == "reflect" and tail:
        lo, hi = min(lo, max(0, extent - 1 - tail)), extent
    if lo >= hi:
        raise NoSplit("the piece would be nothing but padding")
    # A reflected piece may have taken rows beyond those it was asked for.
    makes = Slab(axis, lo + before - head, hi + before + tail)
    widths = [list(width) for width in case.attrs["pad_width"]]
    widths[axis] = [head, tail]
    return Answer((Slab(axis, lo, hi), *(None,) * (len(case.args) - 1)), {"pad_width": widths}, makes)


@rule("transpose", weight=MOVING)
def transpose(case: Case, want: Slab) -> Answer:
    rank = len(case.result)
    axes = case.attrs.get("axes") or range(rank - 1, -1, -1)
    return Answer((Slab(axis_of(list(axes)[want.axis], rank), want.lo, want.hi),))


@rule("layout_transform", weight=MOVING)
def layout_transform(case: Case, want: Slab) -> Answer:
    """A permutation of letters; blocked layouts only along the axes that are not blocked."""
    source, target = case.attrs["src_layout"], case.attrs["dst_layout"]
    if not (source.isalpha() and target.isalpha()):
        raise NoSplit(f"{source} to {target} moves blocks")
    return Answer((Slab(source.index(target[want.axis]), want.lo, want.hi),))


@rule("strided_slice", weight=MOVING)
def strided_slice(case: Case, want: Slab) -> Answer:
    """A slice with positive steps.  The piece states begin, end and step of every axis."""
    (data,) = case.args
    begins, steps = slice_bounds(case.attrs, data)
    lo = begins[want.axis] + want.lo * steps[want.axis]
    hi = begins[want.axis] + (want.hi - 1) * steps[want.axis] + 1
    begins[want.axis] = 0
    ends = [begin + (extent - 1) * step + 1 for begin, extent, step in zip(begins, case.result, steps, strict=True)]
    ends[want.axis] = hi - lo
    attrs = {
        "begin": begins,
        "end": ends,
        "strides": steps,
        "axes": list(range(len(data))),
        "slice_mode": "end",
    }
    return Answer((Slab(want.axis, lo, hi),), attrs)


def slice_bounds(attrs: dict[str, object], data: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Begin and step of each axis of Relay's ``strided_slice``, out-of-range begins clamped as Relay does."""
    given = [attrs["begin"], attrs.get("strides"), attrs.get("axes")]
    begin, strides, axes = (list(value) if value else [] for value in given)  # type: ignore[call-overload]
    begins, steps = [0] * len(data), [1] * len(data)
    for index, axis in enumerate(axes or range(len(begin))):
        axis = axis_of(axis, len(data))
        if attrs.get("slice_mode") != "size" and strides:
            steps[axis] = strides[index] if index < len(strides) else 1
        if steps[axis] < 1:
            raise NoSplit("a slice with a negative step")
        start = begin[index] + data[axis] if begin[index] < 0 else begin[index]
        begins[axis] = min(max(start, 0), data[axis])
    return begins, steps


@rule("squeeze", weight=MOVING)
def squeeze(case: Case, want: Slab) -> Answer:
    (data,) = case.args
    given = case.attrs.get("axis")
    if given is None:
        gone = {axis for axis, extent in enumerate(data) if extent == 1}
    else:
        gone = {axis_of(axis, len(data)) for axis in given}
    kept = [axis for axis in range(len(data)) if axis not in gone]
    # The piece names what it drops: a part of extent 1 would be squeezed away too.
    return Answer((Slab(kept[want.axis], want.lo, want.hi),), {"axis": sorted(gone)})


@rule("expand_dims", weight=MOVING)
def expand_dims(case: Case, want: Slab) -> Answer:
    first, count = axis_of(case.attrs["axis"], len(case.args[0]) + 1), case.attrs["num_newaxis"]
    if first <= want.axis < first + count:
        raise NoSplit("an axis of extent 1")
    return Answer((Slab(want.axis - (count if want.axis >= first else 0), want.lo, want.hi),))


def _kept_axis(case: Case, want: Slab) -> Slab:
    """The argument's axis that a reshape keeps: as much before it, as much in it."""
    source, result = case.args[0], case.result
    outer = prod(result[: want.axis])
    for axis, extent in enumerate(source):
        if extent == result[want.axis] and prod(source[:axis]) == outer:
            return Slab(axis, want.lo, want.hi)
    raise NoSplit(f"reshape of {source} to {result} does not keep axis {want.axis}")


@rule("reshape", weight=MOVING)
def reshape(case: Case, want: Slab) -> Answer:
    shape = list(case.result)
    shape[want.axis] = want.extent
    return Answer((_kept_axis(case, want),), {"newshape": shape, "allowzero": False})


@rule("nn.batch_flatten", weight=MOVING)
def batch_flatten(case: Case, want: Slab) -> Answer:
    return Answer((_kept_axis(case, want),))


@rule("nn.depth_to_space", "nn.space_to_depth", weight=HEAVY)
def blocks(case: Case, want: Slab) -> Answer:
    """Rows are cut between blocks: a row of the deep tensor is ``block_size`` rows of the other."""
    letter, block = letters(case.attrs["layout"], 4)[want.axis], case.attrs["block_size"]
    if letter == "N":
        return Answer((want,))
    if letter == "C":
        raise NoSplit("channels that become rows and columns, or come from them")
    if case.op == "nn.space_to_depth":
        return Answer((Slab(want.axis, want.lo * block, want.hi * block),))
    at_multiples(want, block, f"rows are cut between blocks of {block}")
    return Answer((Slab(want.axis, want.lo // block, want.hi // block),))
