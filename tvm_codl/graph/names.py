"""What the axes of an operator's output are called: ``batch``, ``height``, ``channels``, ``rows``, ``columns``.

The names come from the operator's anchor, or from the layout that its neighbours give to a 4-D tensor.
"""

from __future__ import annotations

from tvm_codl.graph.opgraph import Node, Operator, OpGraph, Shape

# fmt: off
_WINDOW = (
    "nn.conv2d", "nn.conv2d_transpose", "nn.max_pool2d", "nn.avg_pool2d", "nn.global_max_pool2d",
    "nn.global_avg_pool2d", "nn.adaptive_avg_pool2d", "nn.adaptive_max_pool2d", "image.resize2d",
    "nn.upsampling", "nn.depth_to_space", "nn.space_to_depth",
)
# fmt: on
_MATMUL = ("nn.dense", "nn.matmul", "nn.batch_matmul")
_HEAVY = {*_WINDOW, *_MATMUL}
# fmt: off
_REDUCING = (
    "nn.softmax", "nn.fast_softmax", "nn.log_softmax", "nn.layer_norm", "nn.instance_norm", "nn.group_norm",
    "nn.lrn", "all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "sum", "variance",
)
# fmt: on
# fmt: off
_MOVING = (
    "concatenate", "stack", "nn.pad", "transpose", "layout_transform", "strided_slice", "squeeze",
    "expand_dims", "reshape", "nn.batch_flatten", "broadcast_to",
)
# fmt: on
_LETTER_NAMES = {"N": "batch", "C": "channels", "H": "height", "W": "width"}


def weight_class(op: str) -> int:
    """3 for convolutions, products, pooling and resizing; 2 reductions; 1 data movement; 0 element-wise."""
    return 3 if op in _HEAVY else 2 if op in _REDUCING else 1 if op in _MOVING else 0


def anchor_of(body: tuple[Node, ...]) -> int:
    """Index of the node that gives a fused operator its name: the heaviest, of equals the last."""
    return max(range(len(body)), key=lambda index: (weight_class(body[index].op), index))


def own_layout(node: Node) -> str | None:
    """The layout that a node states for its result, if it does and if no axis is blocked."""
    layout = node.attrs.get("data_layout") or node.attrs.get("layout")
    if node.op not in _WINDOW or not isinstance(layout, str):
        return None
    layout = node.attrs.get("out_layout") or layout
    return layout if len(layout) == len(node.results[0]) == 4 else None


def axis_names(node: Node, shape: Shape, layout: str | None) -> list[str]:
    """A name for each axis of an anchor's result."""
    rank = len(shape)
    if node.op in _MATMUL:
        return ["batch", "rows", "columns"][-rank:] if rank <= 3 else [f"axis{axis}" for axis in range(rank)]
    layout = own_layout(node) or layout
    if layout is not None and len(layout) == rank and set(layout) <= set(_LETTER_NAMES):
        return [_LETTER_NAMES[letter] for letter in layout]
    return [f"axis{axis}" for axis in range(rank)]


def layouts(graph: OpGraph) -> dict[int, str]:
    """The layout of each 4-D tensor (by id) that an operator with a stated layout makes, reads, or is reached from.

    Layouts spread forward through operators that keep their operands' axes.
    """
    known: dict[int, str] = {}
    for operator in graph.operators:
        found = _operator_layout(operator, known, graph)
        if found is not None and len(operator.outputs) == 1:
            known[operator.outputs[0]] = found
    for operator in reversed(graph.operators):
        stated = next((own_layout(node) for node in operator.body if own_layout(node)), None)
        stated = stated or (known.get(operator.outputs[0]) if _keeps_axes(operator) else None)
        if stated is not None:
            for tensor in operator.inputs:
                if len(graph.tensors[tensor].shape) == 4:
                    known.setdefault(tensor, stated)
    return known


def _keeps_axes(operator: Operator) -> bool:
    return all(weight_class(node.op) == 0 or node.op in ("concatenate", "nn.pad", "strided_slice", "nn.softmax")
               for node in operator.body)  # fmt: skip


def _operator_layout(operator: Operator, known: dict[int, str], graph: OpGraph) -> str | None:
    anchor = operator.body[anchor_of(operator.body)]
    stated = own_layout(anchor)
    if stated is not None:
        return stated
    heard = [known[t] for t in operator.inputs if t in known and len(graph.tensors[t].shape) == 4]
    if not heard or len(operator.body[-1].results[0]) != 4:
        return None
    if _keeps_axes(operator):
        return heard[0]
    if anchor.op == "transpose" and all(weight_class(n.op) == 0 for n in operator.body if n is not anchor):
        axes = anchor.attrs.get("axes") or [3, 2, 1, 0]
        return "".join(heard[0][axis] for axis in axes)
    if anchor.op == "layout_transform":
        target = anchor.attrs["dst_layout"]
        return target if len(target) == 4 else None
    return None
