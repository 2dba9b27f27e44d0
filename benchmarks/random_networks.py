"""Networks of given operators, wired at random in five forms (``planning_random.py``)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tvm_codl.graph.opgraph import Operator, OpGraph, Shape, Tensor

FAN_OUT = 100


class Wiring:
    """A network of one shape that grows operator by operator; each method returns the tensor that it makes."""

    def __init__(self, shape: Shape, ones: Sequence[Operator], twos: Sequence[Operator], chance: random.Random) -> None:
        self.shape, self.chance, self.drawn = shape, chance, {1: ones, 2: twos}
        self.tensors = [Tensor(0, "x", shape, "float32")]
        self.operators: list[Operator] = []

    def read(self, *inputs: int) -> int:
        """The tensor that an operator makes of one tensor or two."""
        like, id, out = self.chance.choice(self.drawn[len(inputs)]), len(self.operators), len(self.tensors)
        self.operators.append(replace(like, id=id, name=f"{like.kind}_{id}", inputs=inputs, outputs=(out,)))
        self.tensors.append(Tensor(out, f"t{out}", self.shape, "float32"))
        return out

    def graph(self) -> OpGraph:
        taken = {tensor for operator in self.operators for tensor in operator.inputs}
        ends = tuple(tensor.id for tensor in self.tensors if tensor.id not in taken)
        return OpGraph(tuple(self.tensors), tuple(self.operators), (0,), ends)


def any_order(net: Wiring, count: int) -> None:
    while len(net.operators) < count:
        sources = [net.chance.randrange(len(net.tensors)) for _ in range(net.chance.choice((1, 1, 2)))]
        net.read(*sources)


def recurrence(net: Wiring, count: int) -> None:
    """Steps of four gates: each reads the sequence, which stays the same tensor, and the state before it."""
    sequence = state = net.read(0)
    while len(net.operators) < count:
        gates = [net.read(net.read(sequence), net.read(state)) for _ in range(4)]
        state = net.read(net.read(gates[0], gates[1]), net.read(gates[2], gates[3]))


def dense_block(net: Wiring, count: int) -> None:
    made = [0]
    while len(net.operators) < count:
        total = made[0]
        for one in made[1:]:
            total = net.read(total, one)
        made.append(net.read(total))
        if len(made) == 32:
            made = made[-1:]


def fan_out(net: Wiring, count: int) -> None:
    source = 0
    while len(net.operators) < count:
        left = count - len(net.operators)
        made = [net.read(source) for _ in range(min(FAN_OUT, left // 2 + 1))]
        source = made[0]
        for one in made[1:]:
            source = net.read(source, one)


def grid(net: Wiring, count: int) -> None:
    width = max(int(count**0.5), 2)
    above = [net.read(0) for _ in range(width)]
    while len(net.operators) < count:
        left = above[0]
        for column in range(width):
            left = above[column] = net.read(left, above[column])


FORMS: dict[str, Callable[[Wiring, int], None]] = {
    "any order": any_order,
    "recurrence": recurrence,
    "dense block": dense_block,
    "fan-out": fan_out,
    "grid": grid,
}
