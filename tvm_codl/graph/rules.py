"""The table of split rules: from a node's operator to the function that says what a part of its result needs.

An operator that is not in the table is placed whole.  Each rule gets the node as a :class:`~.rule.Case` and the
wanted part of its result, and answers which part of each argument makes it, or raises :class:`~.rule.NoSplit`.
"""

from __future__ import annotations

from tvm_codl.graph import rules_shape as shape
from tvm_codl.graph import rules_window as window
from tvm_codl.graph.opgraph import Shape
from tvm_codl.graph.rule import Answer, Case, NoSplit, Rule, at_multiples, axis_of
from tvm_codl.graph.slab import Need, Slab


def _broadcast(arg: Shape, result: Shape, want: Slab) -> Need:
    """The part of an argument that broadcasts to ``want``, by numpy's rules."""
    axis = want.axis - (len(result) - len(arg))
    if axis < 0 or (arg[axis] == 1 and result[want.axis] != 1):
        return None
    return Slab(axis, want.lo, want.hi)


def elementwise(case: Case, want: Slab) -> Answer:
    return Answer(tuple(_broadcast(arg, case.result, want) for arg in case.args))


def bias_add(case: Case, want: Slab) -> Answer:
    own = axis_of(case.attrs["axis"], len(case.result)) == want.axis
    return Answer((want, Slab(0, want.lo, want.hi) if own else None))


def broadcast_to(case: Case, want: Slab) -> Answer:
    shape = list(case.result)
    shape[want.axis] = want.extent
    return Answer((_broadcast(case.args[0], case.result, want), *(None,) * (len(case.args) - 1)), {"shape": shape})


def dense(case: Case, want: Slab) -> Answer:
    """``data[..., K] x weight[N, K]``: rows from the data, columns from the weight."""
    if want.axis == len(case.result) - 1:
        return Answer((None, Slab(0, want.lo, want.hi)), {"units": want.extent})
    return Answer((want, None))


def matmul(case: Case, want: Slab) -> Answer:
    left, right = (bool(case.attrs[f"transpose_{side}"]) for side in "ab")
    if want.axis == 1:
        return Answer((None, Slab(0 if right else 1, want.lo, want.hi)), {"units": want.extent})
    return Answer((Slab(1 if left else 0, want.lo, want.hi), None))


def batch_matmul(case: Case, want: Slab) -> Answer:
    """``a[B, M, K] x b[B, K, N]``, either transposed; a batch of one serves all."""
    left, right = (bool(case.attrs[f"transpose_{side}"]) for side in "ab")
    if want.axis == 0:
        return Answer(tuple(None if arg[0] == 1 < case.result[0] else want for arg in case.args))
    if want.axis == 1:
        return Answer((Slab(2 if left else 1, want.lo, want.hi), None))
    return Answer((None, Slab(1 if right else 2, want.lo, want.hi)))


def along_axis(case: Case, want: Slab) -> Answer:
    """What mixes values along ``axis`` only (softmax, local response): every other axis splits freely."""
    if axis_of(case.attrs["axis"], len(case.result)) == want.axis:
        raise NoSplit("the operator works along this axis")
    return Answer((want,) * len(case.args))


def layer_norm(case: Case, want: Slab) -> Answer:
    if axis_of(case.attrs["axis"], len(case.result)) == want.axis:
        raise NoSplit("the normalisation works along this axis")
    return Answer((want, None, None))


def instance_norm(case: Case, want: Slab) -> Answer:
    """Normalises over all axes but the batch and its channel axis."""
    if want.axis == 0:
        return Answer((want, None, None))
    if axis_of(case.attrs["axis"], len(case.result)) != want.axis:
        raise NoSplit("the normalisation works along this axis")
    return Answer((want, *(Slab(0, want.lo, want.hi),) * 2))


def group_norm(case: Case, want: Slab) -> Answer:
    if want.axis == 0:
        return Answer((want, None, None))
    if axis_of(case.attrs["axis"], len(case.result)) != want.axis:
        raise NoSplit("the normalisation works along this axis")
    per_group = case.result[want.axis] // case.attrs["num_groups"]
    at_multiples(want, per_group, f"channels are cut between groups of {per_group}")
    return Answer((want, *(Slab(0, want.lo, want.hi),) * 2), {"num_groups": want.extent // per_group})


def reduce(case: Case, want: Slab) -> Answer:
    """Sum, mean, maximum, ...: every axis that is not reduced."""
    attrs, rank = case.attrs, len(case.args[0])
    named = {axis_of(axis, rank) for axis in attrs["axis"]} if attrs.get("axis") is not None else set(range(rank))
    reduced = set(range(rank)) - named if attrs.get("exclude") else named
    source = list(range(rank)) if attrs["keepdims"] else [axis for axis in range(rank) if axis not in reduced]
    axis = source[want.axis]
    if axis in reduced:
        raise NoSplit("the axis is reduced")
    part = Slab(axis, want.lo, want.hi)
    return Answer(tuple(part if arg[axis] != 1 or case.args[0][axis] == 1 else None for arg in case.args))


def prelu(case: Case, want: Slab) -> Answer:
    own = axis_of(case.attrs["axis"], len(case.result)) == want.axis
    return Answer((want, Slab(0, want.lo, want.hi) if own else None))


# fmt: off
UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cast", "ceil", "clip", "copy", "cos", "cosh",
    "erf", "exp", "fast_erf", "fast_exp", "fast_tanh", "floor", "isfinite", "isinf", "isnan", "log", "log10",
    "log2", "logical_not", "negative", "nn.fast_erf", "nn.leaky_relu", "nn.relu", "round", "rsqrt", "sigmoid",
    "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "bitwise_not", "fixed_point_multiply",
)
# fmt: on

# fmt: off
BINARY = (
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "divide", "equal", "floor_divide", "floor_mod",
    "greater", "greater_equal", "left_shift", "less", "less_equal", "logical_and", "logical_or", "logical_xor",
    "maximum", "minimum", "mod", "multiply", "not_equal", "power", "right_shift", "subtract", "trunc_divide",
    "trunc_mod", "where",
)
# fmt: on

# fmt: off
REDUCTIONS = (
    "all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "sum", "variance",
)
# fmt: on

RULES: dict[str, Rule] = {
    **dict.fromkeys(UNARY, elementwise),
    **dict.fromkeys(BINARY, elementwise),
    **dict.fromkeys(REDUCTIONS, reduce),
    "nn.conv2d": window.conv2d,
    "nn.conv2d_transpose": window.conv2d_transpose,
    "nn.max_pool2d": window.pool2d,
    "nn.avg_pool2d": window.pool2d,
    "nn.global_max_pool2d": window.global_pool2d,
    "nn.global_avg_pool2d": window.global_pool2d,
    "nn.adaptive_avg_pool2d": window.adaptive_pool2d,
    "nn.adaptive_max_pool2d": window.adaptive_pool2d,
    "image.resize2d": window.resize2d,
    "nn.upsampling": window.upsampling,
    "nn.dense": dense,
    "nn.matmul": matmul,
    "nn.batch_matmul": batch_matmul,
    "nn.bias_add": bias_add,
    "nn.prelu": prelu,
    "nn.softmax": along_axis,
    "nn.fast_softmax": along_axis,
    "nn.log_softmax": along_axis,
    "nn.lrn": along_axis,
    "nn.layer_norm": layer_norm,
    "nn.instance_norm": instance_norm,
    "nn.group_norm": group_norm,
    "concatenate": shape.concatenate,
    "stack": shape.stack,
    "nn.pad": shape.pad,
    "transpose": shape.transpose,
    "layout_transform": shape.layout_transform,
    "strided_slice": shape.strided_slice,
    "squeeze": shape.squeeze,
    "expand_dims": shape.expand_dims,
    "reshape": shape.reshape,
    "nn.batch_flatten": shape.batch_flatten,
    "nn.depth_to_space": shape.depth_to_space,
    "nn.space_to_depth": shape.space_to_depth,
    "broadcast_to": broadcast_to,
}
