from __future__ import annotations

import msgspec

from tvm_codl.graph.footprint import touched_bytes
from tvm_codl.graph.opgraph import Const, Operator, OpGraph, Tensor


def operator(number: int, inputs: tuple[int, ...], outputs: tuple[int, ...], *consts: Const) -> Operator:
    return Operator(number, f"op_{number}", "op", inputs, outputs, (), consts, 0)


def floats(*counts: int) -> tuple[Tensor, ...]:
    return tuple(Tensor(index, f"t{index}", (count,), "float32") for index, count in enumerate(counts))


CHAIN = OpGraph(
    floats(100, 50, 50, 10), (operator(0, (0,), (1,)), operator(1, (1,), (2,)), operator(2, (2,), (3,))), (0,), (3,)
)


def test_a_tensor_lives_until_it_was_read_for_the_last_time() -> None:
    assert touched_bytes(CHAIN) == 4 * 150
    again = (*CHAIN.operators[:2], operator(2, (0, 2), (3,)))
    assert touched_bytes(msgspec.structs.replace(CHAIN, operators=again)) == 4 * 200
    # What the caller reads stays.
    assert touched_bytes(msgspec.structs.replace(CHAIN, outputs=(1, 3))) == 4 * 150
    assert touched_bytes(msgspec.structs.replace(CHAIN, tensors=floats(10, 50, 50, 60), outputs=(1, 3))) == 4 * 160


def test_a_weight_counts_once() -> None:
    weight, other = Const("w", (20,), "float32"), Const("v", (10,), "int64")
    operators = tuple(msgspec.structs.replace(o, consts=(weight,)) for o in CHAIN.operators[:2])
    last = msgspec.structs.replace(CHAIN.operators[2], consts=(weight, other))
    assert touched_bytes(msgspec.structs.replace(CHAIN, operators=(*operators, last))) == 4 * 150 + 80 + 80
