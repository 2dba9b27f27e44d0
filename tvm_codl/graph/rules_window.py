"""Split rules of operators that slide a window: convolutions, pooling, resizing."""

from __future__ import annotations

from math import gcd, prod
from typing import Any

from tvm_codl.graph.many import lower, upper
from tvm_codl.graph.rule import HEAVY, Answer, Case, NoSplit, at_multiples, letters, rule, window_pads, window_rows
from tvm_codl.graph.slab import Need, Slab


def _layouts(case: Case) -> tuple[str, str]:
    """The layouts of a convolution's data and kernel."""
    layout, kernel_layout = (letters(case.attrs[f"{of}_layout"], 4) for of in ("data", "kernel"))
    if case.attrs.get("out_layout") not in (None, "", layout):
        raise NoSplit("the output has a layout of its own")
    return layout, kernel_layout


def _window(case: Case, dim: int, size: int) -> tuple[int, int, list[int]]:
    """Dilated extent and stride along height (0) or width (1), and the padding of all four sides."""
    attrs = case.attrs
    return (size - 1) * attrs["dilation"][dim] + 1, attrs["strides"][dim], list(window_pads(attrs["padding"]))


def _groups(case: Case, want: Slab) -> tuple[Slab, int, int]:
    """The input channels of the groups that make ``want``, the first group, and the one behind the last."""
    groups = case.attrs["groups"]
    per_group, inputs = case.result[want.axis] // groups, case.args[0][want.axis] // groups
    at_multiples(want, per_group, f"a grouped convolution is cut between groups of {per_group} channels")
    first, last = want.lo // per_group, want.hi // per_group
    return Slab(want.axis, first * inputs, last * inputs), first, last


def _conv2d_flops(case: Case) -> int:
    channels = case.result[case.attrs["data_layout"].index("C")]
    return 2 * prod(case.result) * prod(case.args[1]) // (channels or 1)


@rule("nn.conv2d", weight=HEAVY, flops=_conv2d_flops)
def conv2d(case: Case, want: Slab) -> Answer:
    """Convolution: plain, grouped, depthwise, strided, dilated.  Rows with their halo, channels, batch."""
    layout, kernel_layout = _layouts(case)
    letter = layout[want.axis]
    if letter == "N":
        return Answer((want, None))
    if letter == "C":
        return _conv2d_channels(case, want, layout, kernel_layout)
    data, weight = case.args
    dim = "HW".index(letter)
    kernel, stride, pads = _window(case, dim, weight[kernel_layout.index(letter)])
    slab, pads[dim], pads[dim + 2] = window_rows(want, data[want.axis], want.axis, kernel, stride, pads[dim])
    return Answer((slab, None), {"padding": pads})


def _conv2d_channels(case: Case, want: Slab, layout: str, kernel_layout: str) -> Answer:
    weight, groups, outputs = case.args[1], case.attrs["groups"], case.result[want.axis]
    out_axis = kernel_layout.index("O")
    changed: dict[str, Any] = {"channels": want.extent}
    if groups == 1:
        return Answer((None, Slab(out_axis, want.lo, want.hi)), changed)
    data, first, last = _groups(case, want)
    changed["groups"] = last - first
    # A depthwise kernel may be stored as (channel, multiplier): then O counts groups, not channels.
    by_group = weight[out_axis] == groups != outputs
    weights = Slab(out_axis, first, last) if by_group else Slab(out_axis, want.lo, want.hi)
    if last - first == 1 and (by_group or kernel_layout == "HWOI"):
        # To Relay one group is a plain convolution, whose NHWC form wants HWIO.  With a single input channel HWOI has
        # the same bytes.
        if (kernel_layout, layout) != ("HWOI", "NHWC"):
            reason = f"one group of a depthwise convolution in kernel layout {kernel_layout}"
            raise NoSplit(reason, 2 * (outputs // groups))
        changed["kernel_layout"] = "HWIO"
    return Answer((data, weights), changed)


def _conv2d_transpose_flops(case: Case) -> int:
    """Every input value meets every kernel value of its group."""
    channels = case.args[0][case.attrs["data_layout"].index("C")]
    return 2 * prod(case.args[0]) * prod(case.args[1]) // (channels or 1)


@rule("nn.conv2d_transpose", weight=HEAVY, flops=_conv2d_transpose_flops)
def conv2d_transpose(case: Case, want: Slab) -> Answer:
    """Transposed convolution.  Output row ``o`` sums input rows ``i`` with ``o = i*stride - before + k*dilation``."""
    layout, kernel_layout = _layouts(case)
    letter = layout[want.axis]
    if letter == "N":
        return Answer((want, None))
    if letter == "C":
        changed: dict[str, Any] = {"channels": want.extent}
        if case.attrs["groups"] == 1:
            return Answer((None, Slab(kernel_layout.index("O"), want.lo, want.hi)), changed)
        part, first, last = _groups(case, want)
        return Answer((part, Slab(kernel_layout.index("I"), part.lo, part.hi)), {**changed, "groups": last - first})
    data, weight = case.args
    dim, rows = "HW".index(letter), data[want.axis]
    kernel, stride, pads = _window(case, dim, weight[kernel_layout.index(letter)])
    begin, end = want.lo + pads[dim], want.hi + pads[dim]  # in rows of the unpadded result
    lo = upper(lower(-(-(begin - kernel + 1) // stride), begin // stride), 0)
    hi = lower((end - 1) // stride + 1, rows)
    if lo >= hi:
        raise NoSplit("the piece would read nothing but padding")
    # A stride wider than the kernel leaves gaps.  A part that ends in one needs the row behind it, since padding can not
    # be negative.
    hi = upper(hi, lower(-(-(end - kernel) // stride) + 1, rows))
    before, after = begin - lo * stride, (hi - 1) * stride + kernel - end
    extra = list(case.attrs["output_padding"])
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
    letter, rows = letters(case.attrs["layout"], 4)[want.axis], case.args[0][want.axis]
    if letter in "NC":
        return Answer((want,))
    dim = "HW".index(letter)
    kernel, stride, pads = _window(case, dim, case.attrs["pool_size"][dim])
    slab, pads[dim], after = window_rows(want, rows, want.axis, kernel, stride, pads[dim])
    pads[dim + 2] = lower(after, pads[dim + 2])
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
        at_multiples(want, times, f"rows are cut between the {times} that repeat one source row")
        slab, makes = Slab(want.axis, want.lo // times, want.hi // times), want
    else:
        slab, makes = _resized_rows(case, want, _HALO[attrs["method"]], mode == "align_corners")
    if makes.extent == 1 and mode == "pytorch_half_pixel":
        raise NoSplit("this resize treats a single row specially")
    size = [int(n) for n in attrs["size"]]
    size["HW".index(layout[want.axis])] = makes.extent
    return Answer((slab, *needs), {"size": size}, makes)


def _repeats(method: str, mode: str, rounding: str) -> bool:
    """Whether scaling up by a whole factor repeats each row that many times, all from their own source row."""
    down = (mode, rounding) == ("asymmetric", "floor")
    to_nearest = mode in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round")
    return method == "nearest_neighbor" and (down or to_nearest)


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
