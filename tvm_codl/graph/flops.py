"""Floating-point operations of nodes, a multiply-add counted as two."""

from __future__ import annotations

from math import prod

from tvm_codl.graph.opgraph import Node, Shape
from tvm_codl.graph.rule import Case
from tvm_codl.graph.rules import RULES


def node_flops(node: Node, args: tuple[Shape, ...]) -> int:
    """Operations of one node with arguments of shapes ``args``; an operator without a split rule counts as none."""
    row, case = RULES.get(node.op), Case(node.op, node.attrs, args, node.results[0])
    if row is None:  # poolings in one or three dimensions read their input once
        return prod(args[0]) if node.op.startswith(("nn.global_", "nn.adaptive_")) else 0
    return row.flops * prod(case.result) if isinstance(row.flops, int) else row.flops(case)
