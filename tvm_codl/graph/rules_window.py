"""Split rules of operators that slide a window: convolutions, pooling, resizing."""

from __future__ import annotations

from math import gcd, prod
from typing import Any

from tvm_codl.graph.many import lower, upper
from tvm_codl.graph.rule import HEAVY, Answer, Case, NoSplit, at_multiples, letters, rule, window_pads, window_rows
from tvm_codl.graph.slab import Need, Slab


def _conv2d_flops(case: Case) -> int:
    # ``or 1``: a piece of no channels
    channels = case.result[case.attrs["data_layout"].index("C")] or 1
    return 2 * prod(case.result) * prod(case.args[1]) // channels


@rule("nn.conv2d", weight=HEAVY, flops=_conv2d_flops)
def conv2d(case: Case, want: Slab) -> Answer:
    """Convolution: plain, grouped, depthwise, strided, dilated.  Rows with their halo, channels, batch."""
    attrs = case.attrs
    data, weight = case.args
    layout = letters(attrs["data_layout"], 4)
    kernel_layout = letters(attrs["kernel_layout"], 4)
    if attrs.get("out_layout") not in (None, "", layout):
        raise NoSplit("the output has a layout of its own")
    letter = layout[want.axis]
    if letter == "N":
        return Answer((want, None))
    if letter == "C":
        return _conv2d_channels(case, want, layout, kernel_layout)
    dim = "HW".index(letter)
    kernel = (weight[kernel_layout.index(letter)] - 1) * attrs["dilation"][dim] + 1
    pads = list(window_pads(attrs["padding"]))
    slab, before, after = window_rows(want, data[want.axis], want.axis, kernel, attrs["strides"][dim], pads[dim])
    pads[dim], pads[dim + 2] = before, after
    return Answer((slab, None), {"padding": pads})


def _conv2d_channels(case: Case, want: Slab, layout: str, kernel_layout: str) -> Answer:
    weight, groups = case.args[1], case.attrs["groups"]
    outputs = case.result[want.axis]
    out_axis = kernel_layout.index("O")
    changed: dict[str, Any] = {"channels": want.extent}
    if groups == 1:
        return Answer((None, Slab(out_axis, want.lo, want.hi)), changed)
    per_group = outputs // groups
    at_multiples(want, per_group, f"a grouped convolution is cut between groups of {per_group} channels")
    first, last = want.lo // per_group, want.hi // per_group
    inputs = case.args[0][want.axis] // groups
    changed["groups"] = last - first
    # A depthwise kernel may be stored as (channel, multiplier): then O counts groups, not channels.
    by_group = weight[out_axis] == groups != outputs
    weights = Slab(out_axis, first, last) if by_group else Slab(out_axis, want.lo, want.hi)
    if last - first == 1 and (by_group or kernel_layout == "HWOI"):
        # One group is a plain convolution to Relay, whose NHWC form wants HWIO: with a single input channel the
        # same bytes are that, O and I exchanged.
        if (kernel_layout, layout) != ("HWOI", "NHWC"):
            raise NoSplit(f"one group of a depthwise convolution in kernel layout {kernel_layout}", 2 * per_group)
        changed["kernel_layout"] = "HWIO"
    return Answer((Slab(want.axis, first * inputs, last * inputs), weights), changed)


def _conv2d_transpose_flops(case: Case) -> int:
    """Every input value meets every kernel value of its group."""
    channels = case.args[0][case.attrs["data_layout"].index("C")] or 1
    return 2 * prod(case.args[0]) * prod(case.args[1]) // channels


@rule("nn.conv2d_transpose", weight=HEAVY, flops=_conv2d_transpose_flops)
def conv2d_transpose(case: Case, want: Slab) -> Answer:
    """Transposed convolution.  Output row ``o`` sums input rows ``i`` with ``o = i*stride - before + k*dilation``."""
    attrs = case.attrs
    data, weight = case.args
    layout = letters(attrs["data_layout"], 4)
    kernel_layout = letters(attrs["kernel_layout"], 4)
    if attrs.get("out_layout") not in (None, "", layout):
        raise NoSplit("the output has a layout of its own")
    letter = layout[want.axis]
    if letter == "N":
        return Answer((want, None))
    if letter == "C":
        groups = attrs["groups"]
        per_group = case.result[want.axis] // groups
        out_axis, in_axis = kernel_layout.index("O"), kernel_layout.index("I")
        if groups == 1:
            return Answer((None, Slab(out_axis, want.lo, want.hi)), {"channels": want.extent})
        at_multiples(want, per_group, f"a grouped convolution is cut between groups of {per_group} channels")
        first, last = want.lo // per_group, want.hi // per_group
        inputs = data[want.axis] // groups
        part = (first * inputs, last * inputs)
        return Answer((Slab(want.axis, *part), Slab(in_axis, *part)), {"channels": want.extent, "groups": last - first})
    dim = "HW".index(letter)
    stride, rows = attrs["strides"][dim], data[want.axis]
    kernel = (weight[kernel_layout.index(letter)] - 1) * attrs["dilation"][dim] + 1
    pads = list(window_pads(attrs["padding"]))
    begin, end = want.lo + pads[dim], want.hi + pads[dim]  # in rows of the unpadded result
    lo = upper(lower(-(-(begin - kernel + 1) // stride), begin // stride), 0)
    hi = lower((end - 1) // stride + 1, rows)
    if lo >= hi:
        raise NoSplit("the piece would read nothing but padding")
    # A stride wider than the kernel leaves gaps.  A part that ends in one needs the row behind it, since padding can not
    # be negative.
    hi = upper(hi, lower(-(-(end - kernel) // stride) + 1, rows))
    before = begin - lo * stride
    after = (hi - 1) * stride + kernel - end
    extra = list(attrs["output_padding"])
    extra[dim] = upper(-after, 0)
    pads[dim], pads[dim + 2] = before, upper(after, 0)
    if before > kernel - 1 or pads[dim + 2] > kernel - 1 or extra[dim] >= max(stride, 2):
        raise NoSplit("the piece would need negative padding", stride)
    return Answer((Slab(want.axis, lo, hi), None), {"padding": pads, "output_padding": extra})


def _pool2d_flops(case: Case) -> int:
    high, wide = case.attrs["pool_size"]
    return prod((*case.result, high, wide))


@rule("nn.max_pool2d", "nn.avg_pool2d", weight=HEAVY, flops=_pool2d_flops)
def pool2d(case: Case, want: Slab) -> Answer:
    """Max and average pooling.

    Where the whole rounds its rows up (``ceil_mode``), so do the pieces: the last window's overhang must not become
    padding, which an average may count.
    """
    attrs = case.attrs
    letter = letters(attrs["layout"], 4)[want.axis]
    if letter in "NC":
        return Answer((want,))
    dim = "HW".index(letter)
    pads = list(window_pads(attrs["padding"]))
    kernel = (attrs["pool_size"][dim] - 1) * attrs["dilation"][dim] + 1
    slab, before, after = window_rows(
        want, case.args[0][want.axis], want.axis, kernel, attrs["strides"][dim], pads[dim]
    )
    pads[dim], pads[dim + 2] = before, lower(after, pads[dim + 2])
    return Answer((slab,), {"padding": pads})


def _read_once(case: Case) -> int:
    return prod(case.args[0])


@rule("nn.global_max_pool2d", "nn.global_avg_pool2d", weight=HEAVY, flops=_read_once)
def global_pool2d(case: Case, want: Slab) -> Answer:
    layout = letters(case.attrs["layout"], 4)
    if layout[want.axis] not in "NC":
        raise NoSplit("a global pooling reads all rows")
    return Answer((want,))


@rule("nn.adaptive_avg_pool2d", "nn.adaptive_max_pool2d", weight=HEAVY, flops=_read_once)
def adaptive_pool2d(case: Case, want: Slab) -> Answer:
    """Adaptive pooling: rows only where every output row reads the same number of input rows."""
    layout = letters(case.attrs["layout"], 4)
    if layout[want.axis] in "NC":
        return Answer((want,))
    step, rest = divmod(case.args[0][want.axis], case.result[want.axis])
    if rest:
        raise NoSplit("windows of an adaptive pooling differ in size")
    size = [case.result[layout.index(letter)] for letter in "HW"]
    size["HW".index(layout[want.axis])] = want.extent
    return Answer((Slab(want.axis, want.lo * step, want.hi * step),), {"output_size": size})


_HALO = {"nearest_neighbor": 1, "linear": 1, "bilinear": 1, "cubic": 2, "bicubic": 2}
_TAPS = {"nearest_neighbor": 0, "linear": 4, "bilinear": 4, "cubic": 16, "bicubic": 16}
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn")


def _resize_flops(case: Case) -> int:
    return 2 * prod(case.result) * _TAPS.get(case.attrs["method"], 4)


@rule("image.resize2d", weight=HEAVY, flops=_resize_flops)
def resize2d(case: Case, want: Slab) -> Answer:
    """Resizing: computed with a halo of source rows, then cropped."""
    attrs = case.attrs
    layout = letters(attrs["layout"], 4)
    needs: tuple[Need, ...] = (None,) * (len(case.args) - 1)
    if layout[want.axis] in "NC":
        return Answer((want, *needs))
    mode = attrs["coordinate_transformation_mode"]
    if mode not in _COORDINATES:
        raise NoSplit(f"resize in coordinates {mode!r}")
    times, rest = divmod(case.result[want.axis], case.args[0][want.axis])
    if rest == 0 and _repeats(attrs["method"], mode, attrs["rounding_method"]):
        return _repeated_rows(case, want, times, needs, layout)
    slab, makes = _resized_rows(case, want, _HALO[attrs["method"]], mode == "align_corners")
    if makes.extent == 1 and mode == "pytorch_half_pixel":
        raise NoSplit("this resize treats a single row specially")
    return Answer((slab, *needs), _size(case, makes, layout), makes)


def _size(case: Case, makes: Slab, layout: str) -> dict[str, Any]:
    size = [int(n) for n in case.attrs["size"]]
    size["HW".index(layout[makes.axis])] = makes.extent
    return {"size": size}


def _repeats(method: str, mode: str, rounding: str) -> bool:
    """Whether scaling up by a whole factor repeats each row that many times, all from their own source row."""
    if method != "nearest_neighbor":
        return False
    return (mode, rounding) == ("asymmetric", "floor") or (
        mode in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round")
    )


def _repeated_rows(case: Case, want: Slab, times: int, needs: tuple[Need, ...], layout: str) -> Answer:
    at_multiples(want, times, f"rows are cut between the {times} that repeat one source row")
    slab = Slab(want.axis, want.lo // times, want.hi // times)
    if want.extent == 1 and case.attrs["coordinate_transformation_mode"] == "pytorch_half_pixel":
        raise NoSplit("this resize treats a single row specially")
    return Answer((slab, *needs), _size(case, want, layout))


@rule("nn.upsampling", weight=HEAVY, flops=_resize_flops)
def upsampling(case: Case, want: Slab) -> Answer:
    """``nn.upsampling``: by a whole factor, so the factor itself does not change with the piece."""
    attrs = case.attrs
    layout = letters(attrs["layout"], 4)
    if layout[want.axis] in "NC":
        return Answer((want,))
    if case.result[want.axis] % case.args[0][want.axis] or attrs["align_corners"]:
        raise NoSplit("upsampling by a broken factor")
    slab, makes = _resized_rows(case, want, _HALO[attrs["method"]], False)
    return Answer((slab,), {}, makes)


def _resized_rows(case: Case, want: Slab, halo: int, corners: bool) -> tuple[Slab, Slab]:
    """Source rows for output rows ``want``, and the output rows that they make.

    The ratio of rows must stay the same fraction, ``num / den`` in lowest terms, so a piece starts and ends at
    multiples of ``den`` source rows.  With aligned corners the ratio is that of the distances, a row fewer each.
    """
    rows, results = case.args[0][want.axis], case.result[want.axis]
    less = 1 if corners else 0
    if rows - less <= 0 or results - less <= 0:
        raise NoSplit("resize from or to a single row")
    common = gcd(rows - less, results - less)
    if common == 1:
        raise NoSplit(f"every piece of a resize from {rows} to {results} rows would compute all of it")
    num, den = (results - less) // common, (rows - less) // common
    first = want.lo * den // num - halo
    last = -(-(want.hi * den) // num) + halo
    lo = upper(first // den * den, 0)
    hi = lower(-(-upper(last - less, lo + den) // den) * den + less, rows)
    makes = Slab(want.axis, lo // den * num, (hi - less) // den * num + less)
    return Slab(want.axis, lo, hi), makes
