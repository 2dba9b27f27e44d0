"""Which operators each node of an ONNX file became part of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import onnx

#: Static shapes make constants of them, and of what is computed from them alone.
_CONSTANT = frozenset({"Constant", "ConstantOfShape", "Shape", "Size"})
#: With a constant beside what they work on, they go into the weights or the bias of one of these before them.
_SCALES = frozenset({"Add", "BatchNormalization", "Div", "Mul", "Sub"})
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
#: They are fused with a scale before them, whose own name is lost.
_ACTIVATIONS = frozenset({"Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "PRelu", "Relu", "Sigmoid", "Tanh"})


def name_nodes(graph: onnx.GraphProto) -> None:
    """Gives nodes without a name, or with one that another has, that of their first output: spans then say which it was."""
    for node, name in zip(graph.node, _names(graph), strict=True):
        node.name = name


def _names(graph: onnx.GraphProto) -> list[str]:
    count = Counter(node.name for node in graph.node)
    return [node.name if node.name and count[node.name] == 1 else _outputs(node)[0] for node in graph.node]


def _outputs(node: onnx.NodeProto) -> list[str]:
    return [name for name in node.output if name]


def operators_of_nodes(graph: onnx.GraphProto, sources: Mapping[int, Collection[str]]) -> list[tuple[int, ...]]:
    """For each node the operators that it is part of, none where that is not known or it was folded away.

    ``sources``: by operator, the names of the nodes that its calls came from.  A node that lost its name has the operator
    of nodes on both sides of it, and a scale that of the weights or the activation that it is merged with.
    """
    places = {name: place for place, node in enumerate(graph.node) for name in _outputs(node)}
    places |= {name: place for place, name in enumerate(_names(graph))}
    found: list[set[int]] = [set() for _ in graph.node]
    for operator, names in sources.items():
        for name in names:
            place = _place(name, places)
            if place is not None:
                found[place].add(operator)
    return [tuple(sorted(operators)) for operators in _filled(graph, found)]


def _place(name: str, places: Mapping[str, int]) -> int | None:
    """A node that the import made is called after the output of the file's node that it is part of: ``OUTPUT.more``."""
    while name not in places and "." in name:
        name = name.rpartition(".")[0]
    return places.get(name)


def _filled(graph: onnx.GraphProto, found: Sequence[set[int]]) -> list[set[int]]:
    nodes = graph.node
    made = {name: place for place, node in enumerate(nodes) for name in _outputs(node)}
    readers: list[list[int]] = [[] for _ in nodes]
    computed = _computed(graph)
    before = [[made[name] for name in node.input if name in made and computed[made[name]]] for node in nodes]
    for place, producers in enumerate(before):
        for producer in producers:
            readers[producer].append(place)
    above, below = _nearest(before, found), _nearest(readers, found, backwards=True)
    filled = [set(operators) for operators in found]
    for place, node in enumerate(nodes):
        if found[place] or not computed[place]:
            continue
        filled[place] = set.intersection(*(_operators(found, near[place]) for near in (above, below)))
        if filled[place] or node.op_type not in _SCALES or len(before[place]) > 1:
            continue
        if len(above[place]) == 1 and {nodes[n].op_type for n in above[place]} <= _WEIGHTED:
            filled[place] = _operators(found, above[place])
        elif len(below[place]) == 1 and {nodes[n].op_type for n in below[place]} <= _ACTIVATIONS:
            filled[place] = _operators(found, below[place])
    return filled


def _computed(graph: onnx.GraphProto) -> list[bool]:
    """Whether each node depends on the network's inputs; their shapes do not count."""
    moving = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    answers = []
    for node in graph.node:
        answers.append(node.op_type not in _CONSTANT and not moving.isdisjoint(node.input))
        moving |= set(_outputs(node)) if answers[-1] else set()
    return answers


def _nearest(neighbours: Sequence[Sequence[int]], found: Sequence[set[int]], backwards: bool = False) -> list[set[int]]:
    """For each node the nearest ones, through nodes whose operator is not known, whose operator is."""
    near: list[set[int]] = [set() for _ in neighbours]
    for place in reversed(range(len(near))) if backwards else range(len(near)):
        for other in neighbours[place]:
            near[place] |= {other} if found[other] else near[other]
    return near


def _operators(found: Sequence[set[int]], places: Collection[int]) -> set[int]:
    return set().union(*(found[place] for place in places))
