"""Split rules of element-wise operators, products, normalisations and reductions; with :mod:`.rules_shape` and
:mod:`.rules_window` they fill the table ``RULES``.

A rule gets a node as a :class:`~.rule.Case` and the wanted part of its result.  It answers which part of each argument
makes it, or raises :class:`~.rule.NoSplit`.  An operator that is not in the table is placed whole.
"""

from __future__ import annotations

from math import prod

from tvm_codl.graph import rules_shape, rules_window  # noqa: F401  # their rules enter the table
from tvm_codl.graph.opgraph import Shape
from tvm_codl.graph.rule import HEAVY, MOVING, REDUCING, RULES, Answer, Case, NoSplit, at_multiples, axis_of, rule
from tvm_codl.graph.slab import Need, Slab

__all__ = ["RULES"]

# fmt: off
_UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "fast_erf",
    "fast_exp", "fast_tanh", "floor", "isfinite", "isinf", "isnan", "log", "log10", "log2", "logical_not", "negative",
    "nn.fast_erf", "nn.relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
    "bitwise_not", "fixed_point_multiply",
)
_BINARY = (
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "divide", "equal", "floor_divide", "floor_mod",
    "greater", "greater_equal", "left_shift", "less", "less_equal", "logical_and", "logical_or", "logical_xor",
    "maximum", "minimum", "mod", "multiply", "not_equal", "power", "right_shift", "subtract", "trunc_divide",
    "trunc_mod", "where",
)
_REDUCTIONS = ("all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "sum")
# fmt: on


def _broadcast(arg: Shape, result: Shape, want: Slab) -> Need:
    """The part of an argument that broadcasts to ``want``, by numpy's rules."""
    axis = want.axis - (len(result) - len(arg))
    if axis < 0 or (arg[axis] == 1 and result[want.axis] != 1):
        return None
    return Slab(axis, want.lo, want.hi)


@rule(*_UNARY, *_BINARY, flops=1)
@rule("cast", "copy", "reinterpret")
@rule("clip", "nn.leaky_relu", flops=2)
def elementwise(case: Case, want: Slab) -> Answer:
    return Answer(tuple(_broadcast(arg, case.result, want) for arg in case.args))


@rule("nn.bias_add", flops=1)
@rule("nn.prelu", flops=2)
def along_channels(case: Case, want: Slab) -> Answer:
    """An argument with a value for each channel: a bias, a slope."""
    own = axis_of(case.attrs["axis"], len(case.result)) == want.axis
    return Answer((want, Slab(0, want.lo, want.hi) if own else None))


@rule("broadcast_to", weight=MOVING)
def broadcast_to(case: Case, want: Slab) -> Answer:
    shape = list(case.result)
    shape[want.axis] = want.extent
    return Answer((_broadcast(case.args[0], case.result, want), *(None,) * (len(case.args) - 1)), {"shape": shape})


def _product_flops(case: Case) -> int:
    """Every value of the result sums over the depth of the left operand."""
    left = case.args[0]
    depth = left[-2] if case.attrs.get("transpose_a") else left[-1]
    return 2 * prod(case.result) * depth


@rule("nn.dense", weight=HEAVY, flops=_product_flops)
def dense(case: Case, want: Slab) -> Answer:
    """``data[..., K] x weight[N, K]``: rows from the data, columns from the weight."""
    if want.axis == len(case.result) - 1:
        return Answer((None, Slab(0, want.lo, want.hi)), {"units": want.extent})
    return Answer((want, None))


@rule("nn.matmul", weight=HEAVY, flops=_product_flops)
def matmul(case: Case, want: Slab) -> Answer:
    left, right = (bool(case.attrs[f"transpose_{side}"]) for side in "ab")
    if want.axis == 1:
        return Answer((None, Slab(0 if right else 1, want.lo, want.hi)), {"units": want.extent})
    return Answer((Slab(1 if left else 0, want.lo, want.hi), None))


@rule("nn.batch_matmul", weight=HEAVY, flops=_product_flops)
def batch_matmul(case: Case, want: Slab) -> Answer:
    """``a[B, M, K] x b[B, K, N]``, either transposed; a batch of one serves all."""
    left, right = (bool(case.attrs[f"transpose_{side}"]) for side in "ab")
    if want.axis == 0:
        return Answer(tuple(None if arg[0] == 1 < case.result[0] else want for arg in case.args))
    if want.axis == 1:
        return Answer((Slab(2 if left else 1, want.lo, want.hi), None))
    return Answer((None, Slab(1 if right else 2, want.lo, want.hi)))


@rule("nn.softmax", "nn.fast_softmax", "nn.log_softmax", weight=REDUCING, flops=5)
@rule("nn.lrn", weight=REDUCING, flops=10)
@rule("nn.layer_norm", weight=REDUCING, flops=8)
def along_axis(case: Case, want: Slab) -> Answer:
    """What mixes values along ``axis`` only: every other axis splits freely."""
    if axis_of(case.attrs["axis"], len(case.result)) == want.axis:
        raise NoSplit("the operator works along this axis")
    return Answer((want, *(None,) * (len(case.args) - 1)))


@rule("nn.instance_norm", "nn.group_norm", weight=REDUCING, flops=8)
def channel_norm(case: Case, want: Slab) -> Answer:
    """Normalises over all axes but the batch and the channels; channels in groups, if there are any."""
    if want.axis == 0:
        return Answer((want, None, None))
    if axis_of(case.attrs["axis"], len(case.result)) != want.axis:
        raise NoSplit("the normalisation works along this axis")
    channels, changed = Slab(0, want.lo, want.hi), {}
    if groups := case.attrs.get("num_groups"):
        per_group = case.result[want.axis] // groups
        at_multiples(want, per_group, f"channels are cut between groups of {per_group}")
        changed = {"num_groups": want.extent // per_group}
    return Answer((want, channels, channels), changed)


@rule(*_REDUCTIONS, weight=REDUCING, flops=lambda case: prod(case.args[0]))
@rule("variance", weight=REDUCING, flops=lambda case: 3 * prod(case.args[0]))
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
