"""Demand: what a part of a fused operator's output takes of its nodes and inputs.

Split rules know single nodes.  Here they are composed backward along an operator's body.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tvm_codl.graph.names import anchor_of
from tvm_codl.graph.opgraph import Node, Operator, OpGraph, Shape
from tvm_codl.graph.rule import Answer, Case, NoSplit
from tvm_codl.graph.rules import RULES
from tvm_codl.graph.slab import Need, Slab, hull


class Demand(msgspec.Struct, frozen=True):
    """What a part of an operator's output takes.

    ``nodes``: what is wanted of each body node, an empty slab for nothing.  ``answers``: what its rule says, None if it is
    computed whole or not at all.  ``inputs``: what the nodes read of each of the operator's inputs.
    """

    nodes: list[Need]
    answers: list[Answer | None]
    inputs: list[Need]


def demand(operator: Operator, graph: OpGraph, want: Slab) -> Demand:
    """Asks the rules backward along the body.  Raises NoSplit if one refuses, or if there is no such part."""
    extent = operator.body[-1].results[0][want.axis]
    if not 0 <= want.lo < want.hi <= extent:
        raise NoSplit(f"{want.lo}..{want.hi} is no part of an axis of {extent}")

    def empty(part: Slab) -> bool:
        # Most parts have the ends of ``want``, which is not empty.
        return (part.lo is not want.lo or part.hi is not want.hi) and part.empty

    body, anchor = operator.body, anchor_of(operator.body)
    wanted: list[list[Need]] = [[] for _ in body]
    wanted[-1].append(want)
    read: list[list[Need]] = [[] for _ in operator.inputs]
    nodes: list[Need] = [None] * len(body)
    answers: list[Answer | None] = [None] * len(body)
    for index in range(len(body) - 1, -1, -1):
        node = body[index]
        need = nodes[index] = hull(wanted[index])
        if need is None:
            if index == anchor:
                raise NoSplit(f"every piece would compute all of {node.op}")
            args: Sequence[Need] = (None,) * len(node.args)
        elif empty(need):
            continue
        else:
            answer = answers[index] = _ask(operator, graph, node, need)
            args = answer.args
        for ref, arg in zip(node.args, args, strict=True):
            if ref.source == "node":
                wanted[ref.index].append(arg)
            elif ref.source == "input" and (arg is None or not empty(arg)):
                read[ref.index].append(arg)
    return Demand(nodes, answers, [hull(parts) for parts in read])


def _ask(operator: Operator, graph: OpGraph, node: Node, need: Slab) -> Answer:
    row = RULES.get(node.op)
    if row is None or len(node.results) != 1:
        raise NoSplit(f"{node.op} has no split rule")
    answer = row.split(Case(node.op, node.attrs, _arg_shapes(operator, node, graph), node.results[0]), need)
    if not answer.attrs.keys() <= node.attrs.keys():  # they are kept in a form that no rule can change
        raise NoSplit(f"{node.op} has attributes without a plain form")
    return answer


def _arg_shapes(operator: Operator, node: Node, graph: OpGraph) -> tuple[Shape, ...]:
    """The shapes of a node's arguments, in the whole operator."""
    return tuple(
        graph.tensors[operator.inputs[ref.index]].shape
        if ref.source == "input"
        else operator.consts[ref.index].shape
        if ref.source == "const"
        else operator.body[ref.index].results[0]
        for ref in node.args
    )
