"""From a piece of an operator to Relay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tvm
from tvm import relay

from tvm_codl.graph.opgraph import Node, Ref
from tvm_codl.graph.slab import Need
from tvm_codl.graph.split import Piece
from tvm_codl.relay.attributes import from_plain
from tvm_codl.relay.calls import as_constant
from tvm_codl.relay.extract import TUPLE, TUPLE_GET_ITEM

# Relay passes one tuple, an OpGraph node has separate arguments.
_TAKES_TUPLE = ("concatenate", "stack", "einsum", "meshgrid")


class WeightSlices:
    """The constants of pieces.  Equal slices of a weight are one constant, copied once."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights = weights
        self.made: dict[tuple[str, Need], relay.Constant] = {}

    def constant(self, key: str, part: Need) -> relay.Constant:
        if (key, part) not in self.made:
            value = self.weights[key]
            if part is not None:
                value = value[(slice(None),) * part.axis + (slice(part.lo, part.hi),)]
            self.made[key, part] = as_constant(np.ascontiguousarray(value).reshape(value.shape))
        return self.made[key, part]


def piece_function(piece: Piece, weights: Mapping[str, np.ndarray], dtypes: Sequence[str]) -> relay.Function:
    """The piece as a function of its feeds, its weights inside as constants.

    ``dtypes`` are the types of ``piece.operator.inputs``; the parameters are called ``input0``, ``input1``, ...
    """
    params = [
        relay.var(f"input{index}", shape=shape, dtype=dtype)
        for index, (shape, dtype) in enumerate(zip(piece.feed_shapes, dtypes, strict=True))
    ]
    results = piece_body(piece, params, WeightSlices(weights))
    body = results[0] if len(results) == 1 else relay.Tuple(results)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, body)))["main"]


def piece_body(piece: Piece, feeds: Sequence[relay.Expr], weights: WeightSlices) -> list[relay.Expr]:
    """The outputs of a piece, computed from expressions for its feeds."""
    operator = piece.operator
    consts = [weights.constant(const.key, part) for const, part in zip(operator.consts, piece.const_parts, strict=True)]
    made: list[relay.Expr] = []

    def argument(ref: Ref) -> relay.Expr:
        return {"input": feeds, "const": consts, "node": made}[ref.source][ref.index]

    for node in operator.body:
        made.append(_call(node, [argument(ref) for ref in node.args]))
    last = operator.body[-1]
    if last.op == TUPLE:
        return [argument(ref) for ref in last.args]
    if len(last.results) == 1:
        return [made[-1]]
    return [relay.TupleGetItem(made[-1], index) for index in range(len(last.results))]


def _call(node: Node, args: list[relay.Expr]) -> relay.Expr:
    if node.op == TUPLE:
        return relay.Tuple(args)
    if node.op == TUPLE_GET_ITEM:
        return relay.TupleGetItem(args[0], node.attrs["index"])
    if node.op in _TAKES_TUPLE:
        if len(args) == 1 and node.op == "concatenate":
            return args[0]  # the piece touches a single argument
        args = [relay.Tuple(args)]
    return relay.Call(tvm.ir.Op.get(node.op), args, from_plain(node.op, node.attrs))
