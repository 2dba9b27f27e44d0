"""What the axes of an operator's output are called: ``batch``, ``height``, ``channels``, ``rows``, ``columns``.

The names come from the operator's anchor, or from the layout that its neighbours give to a 4-D tensor.
"""

from __future__ import annotations

from tvm_codl.graph.opgraph import Node, Operator, OpGraph, Shape
from tvm_codl.graph.rule import ELEMENTWISE, HEAVY
from tvm_codl.graph.rules import RULES

_LETTER_NAMES = {"N": "batch", "C": "channels", "H": "height", "W": "width"}


def weight_of(op: str) -> int:
    """How much an operator weighs (:mod:`.rule`): as its row of the table says, least if it has none."""
    return RULES[op].weight if op in RULES else ELEMENTWISE


def anchor_of(body: tuple[Node, ...]) -> int:
    """Index of the node that gives a fused operator its name: the heaviest, of equals the last."""
    return max(range(len(body)), key=lambda index: (weight_of(body[index].op), index))


def own_layout(node: Node) -> str | None:
    """The layout that a node states for its result, if it does and if no axis is blocked."""
    layout = node.attrs.get("data_layout") or node.attrs.get("layout")
    if weight_of(node.op) != HEAVY or not isinstance(layout, str):
        return None
    layout = node.attrs.get("out_layout") or layout
    return layout if len(layout) == len(node.results[0]) == 4 else None


def axis_names(node: Node, shape: Shape, layout: str | None) -> list[str]:
    """A name for each axis of an anchor's result."""
    rank = len(shape)
    if weight_of(node.op) == HEAVY and not {"data_layout", "layout"} & set(node.attrs):  # a product of matrices
        return ["batch", "rows", "columns"][-rank:] if rank <= 3 else [f"axis{axis}" for axis in range(rank)]
    layout = own_layout(node) or layout
    if layout is not None and len(layout) == rank and set(layout) <= set(_LETTER_NAMES):
        return [_LETTER_NAMES[letter] for letter in layout]
    return [f"axis{axis}" for axis in range(rank)]


def layouts(graph: OpGraph) -> dict[int, str]:
    """The layouts of 4-D tensors, by id, as far as operators tell.

    An operator may state the layout of what it makes and reads.  Layouts spread through operators that keep their
    operands' axes.
    """
    spread: dict[int, str] = {}
    for operator in graph.operators:
        layout = _operator_layout(operator, spread, graph)
        if layout is not None and len(operator.outputs) == 1:
            spread[operator.outputs[0]] = layout
    for operator in reversed(graph.operators):
        stated = next((own_layout(node) for node in operator.body if own_layout(node)), None)
        stated = stated or (spread.get(operator.outputs[0]) if _keeps_axes(operator) else None)
        if stated is not None:
            for tensor in operator.inputs:
                if len(graph.tensors[tensor].shape) == 4:
                    spread.setdefault(tensor, stated)
    return spread


def _keeps_axes(operator: Operator) -> bool:
    return all(weight_of(node.op) == ELEMENTWISE or node.op in ("concatenate", "nn.pad", "strided_slice", "nn.softmax")
               for node in operator.body)  # fmt: skip


def _operator_layout(operator: Operator, spread: dict[int, str], graph: OpGraph) -> str | None:
    anchor = operator.body[anchor_of(operator.body)]
    stated = own_layout(anchor)
    if stated is not None:
        return stated
    heard = [spread[t] for t in operator.inputs if t in spread and len(graph.tensors[t].shape) == 4]
    if not heard or len(operator.body[-1].results[0]) != 4:
        return None
    if _keeps_axes(operator):
        return heard[0]
    if anchor.op == "transpose" and all(weight_of(n.op) == ELEMENTWISE for n in operator.body if n is not anchor):
        axes = anchor.attrs.get("axes") or [3, 2, 1, 0]
        return "".join(heard[0][axis] for axis in axes)
    if anchor.op == "layout_transform":
        target = anchor.attrs["dst_layout"]
        return target if len(target) == 4 else None
    return None
