"""OpGraph: the network as fused operators and the tensors between them.

An :class:`Operator` is what runs as one kernel: an anchor (convolution, dense, pooling, ...) and the
element-wise operators fused behind it.  Its ``body`` keeps the single operators with their attributes, so that
split rules can be composed along it without knowing where the network came from.  Nothing here imports TVM.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Shape = tuple[int, ...]


class Tensor(msgspec.Struct, frozen=True):
    """A value that passes between operators, or into or out of the network."""

    id: int
    name: str
    shape: Shape
    dtype: str


class Ref(msgspec.Struct, frozen=True):
    """Where a node takes one argument from.

    ``input``: the operator's ``inputs[index]``; ``node``: ``body[index]``; ``const``: ``consts[index]``.
    """

    source: Literal["input", "node", "const"]
    index: int


class Const(msgspec.Struct, frozen=True):
    """A weight.  ``key`` names its value in the binding that the extraction returns beside the graph."""

    key: str
    shape: Shape
    dtype: str


class Node(msgspec.Struct, frozen=True):
    """One single operator of a fused one, e.g. ``nn.conv2d``; ``attrs`` are plain JSON values.

    ``results`` holds one shape for each output; all but a few operators have one.
    An argument that Relay takes as a tuple (``concatenate``) is spread into ``args``.
    """

    op: str
    attrs: dict[str, Any]
    args: tuple[Ref, ...]
    results: tuple[Shape, ...]
    dtype: str


class Operator(msgspec.Struct, frozen=True):
    """A fused operator.  ``kind`` is its anchor's short name (``conv2d``, ``depthwise``, ``dense``, ``add``, ...)."""

    id: int
    name: str
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    body: tuple[Node, ...]
    consts: tuple[Const, ...]
    flops: int


class OpGraph(msgspec.Struct, frozen=True):
    """Operators in topological order; ``inputs`` and ``outputs`` are tensor ids."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
