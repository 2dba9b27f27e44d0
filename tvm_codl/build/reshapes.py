"""Moves reshapes behind element-wise operators, which then become one kernel with what is in front of them.

The kernels of convolutions of 1 x 1 windows may take (N, H, W, C) for (N, 1, H W, C), a single row
(:mod:`tvm_codl.kernels.tiles.one_row`): no value moves, and a reshape by itself is no kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relay

from tvm_codl.build.dataflow import shape_of
from tvm_codl.build.order import in_order, parts

#: Become one kernel with a convolution, and do not ask where a position is.
ELEMENTWISE = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "clip", "sigmoid", "tanh"),
        *("nn.bias_add", "nn.relu", "nn.leaky_relu", "nn.prelu"),
    }
)
Shape = tuple[int, ...]


@tvm.transform.module_pass(opt_level=0, name="MoveReshapes")
def MOVE_RESHAPES(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """Of ``@main`` with inferred types."""
    main = mod["main"]
    made: dict[relay.Expr, relay.Expr] = {}
    rows: dict[relay.Expr, relay.Expr] = {}  # by what has rows: the same values in one row
    for expr in in_order(main.body):
        made[expr] = _moved(expr, made, rows)
    if not rows:
        return mod
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(main.params, made[main.body])))


def _moved(expr: relay.Expr, made: Mapping[relay.Expr, relay.Expr], rows: dict[relay.Expr, relay.Expr]) -> relay.Expr:
    new = [made.get(part, part) for part in parts(expr)]
    if isinstance(expr, relay.Tuple):
        return relay.Tuple(new, expr.span)
    if isinstance(expr, relay.TupleGetItem):
        return relay.TupleGetItem(new[0], expr.index, expr.span)
    if not isinstance(expr, relay.Call):
        return expr
    again = relay.Call(expr.op, new, expr.attrs, expr.type_args, expr.span)
    name = expr.op.name if isinstance(expr.op, tvm.ir.Op) else ""
    if name != "reshape" and not (name in ELEMENTWISE and rows and any(arg in rows for arg in expr.args)):
        return again
    shape, shapes = _shape(expr), [_shape(arg) for arg in expr.args]
    if name == "reshape":
        if shape == _row(shapes[0]) and expr.args[0] in rows:
            return rows[expr.args[0]]
        if shapes[0] == _row(shape):
            rows[expr] = new[0]
    elif all(_fits(s, shape) for s in shapes):
        given = [
            rows[arg] if arg in rows else relay.reshape(part, _row(size)) if size[1:3] == shape[1:3] else part
            for arg, part, size in zip(expr.args, new, shapes, strict=True)
        ]
        rows[expr] = relay.Call(expr.op, given, expr.attrs, expr.type_args, expr.span)
        return relay.reshape(rows[expr], shape)
    return again


def _shape(expr: relay.Expr) -> Shape:
    """() for a tuple."""
    kind = expr.checked_type
    return shape_of(kind) if isinstance(kind, relay.TensorType) else ()


def _row(shape: Shape) -> Shape:
    """(N, H, W, C) in one row; () for other numbers of axes."""
    return (shape[0], 1, shape[1] * shape[2], shape[3]) if len(shape) == 4 else ()


def _fits(shape: Sequence[int], result: Sequence[int]) -> bool:
    """Whether an operand has the result's rows and columns, or one value for all of them."""
    return len(shape) < 2 or (len(shape) == 4 and tuple(shape[1:3]) in {tuple(result[1:3]), (1, 1)})
