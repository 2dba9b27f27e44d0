"""The two lists of a program, run in any order that their events allow: whoever reads a byte finds what this run wrote.

A model of the co-executor's memory, not the co-executor: one memory for both processors, where transfers do nothing, and
a copy on either side of every shared buffer, where only transfers bring what the other one wrote.
"""

from __future__ import annotations

import random
from math import prod
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_codl.build.dataflow import Argument, Dataflow, Region, Root, Value
from tvm_codl.build.kernels import CompiledRegion, Kernels
from tvm_codl.build.program import JsonObject, write
from tvm_codl.build.region import Call, Operand

EXTENT = 8
PROCESSORS = ("cpu", "gpu")


@st.composite
def flows(draw: st.DrawFn) -> Dataflow:
    """Regions that write a tensor, or one of two parts of it, and read ranges of what is written."""
    roots = [Root((EXTENT,), "float32")]
    written = [[(0, EXTENT)]]
    open_: list[tuple[int, int]] = []  # tensors of which the second part is missing, and where it begins
    regions: list[Region] = []
    for number in range(draw(st.integers(2, 9))):
        inputs = []
        for _ in range(draw(st.integers(1, 2))):
            root = draw(st.integers(0, len(roots) - 1))
            lo, hi = draw(st.sampled_from(_runs(written[root])))
            lo = draw(st.integers(lo, hi - 1))
            inputs.append(Argument(Value(root, 0, lo, draw(st.integers(lo + 1, hi)))))
        kind = draw(st.sampled_from(("whole", "part", "rest", "rest")))
        if kind == "rest" and open_:
            root, lo = open_.pop(draw(st.integers(0, len(open_) - 1)))
            hi = EXTENT
        else:
            root, lo, hi = len(roots), 0, EXTENT if kind == "whole" else draw(st.integers(1, EXTENT - 1))
            roots.append(Root((EXTENT,), "float32"))
            written.append([])
            if hi < EXTENT:
                open_.append((root, hi))
        written[root].append((lo, hi))
        region: Any = Region(
            f"r{number}", draw(st.sampled_from(PROCESSORS)), "", None, inputs, [Value(root, 0, lo, hi)]
        )
        regions.append(region)
    whole = [root for root in range(len(roots)) if _runs(written[root]) == [(0, EXTENT)]]
    return Dataflow(roots, regions, [("x", Value(0))], [Argument(Value(draw(st.sampled_from(whole))))])


def _runs(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges that touch become one."""
    found: list[tuple[int, int]] = []
    for lo, hi in sorted(ranges):
        if found and found[-1][1] == lo:
            found[-1] = found[-1][0], hi
        else:
            found.append((lo, hi))
    return found


def program_of(flow: Dataflow) -> JsonObject:
    """With one kernel a region."""
    kernels: dict[str, Any] = {}
    for processor in PROCESSORS:
        compiled = []
        for index, region in enumerate(flow.regions):
            if region.processor == processor:
                operands = [Operand("input", i, _shape(a.part), "float32") for i, a in enumerate(region.inputs)]
                (given_,) = region.outputs
                operands.append(Operand("output", 0, _shape(given_), "float32"))
                compiled.append(CompiledRegion(index, [Call("f", operands, 1)], []))
        if compiled:
            kernels[processor] = Kernels({}, {}, compiled)
    return write(flow, kernels)


def _shape(part: Value) -> tuple[int, ...]:
    return () if part.axis < 0 else (part.hi - part.lo,)


class Memory:
    """What every byte holds on either side: the buffer and the byte of it that were written there last, and in which run."""

    def __init__(self, program: JsonObject, copied: bool) -> None:
        self.buffers, self.copied = program["buffers"], copied
        self.sides: dict[str, dict[tuple[str, int], tuple[int, int, int]]] = {"cpu": {}, "gpu": {}}
        if not copied:
            self.sides["gpu"] = self.sides["cpu"]

    def places(self, view: JsonObject) -> list[tuple[tuple[str, int], int]]:
        """Each byte of a view: where it is, and which of its buffer it is."""
        buffer = self.buffers[view["buffer"]]
        home, at = f"buffer {view['buffer']}", 0
        if self.copied and "block" in buffer:
            home, at = f"block {buffer['block']}", buffer["at"]
        elif not self.copied and "common" in buffer:
            home, at = "common", buffer["common"]
        elif not self.copied and "block" in buffer:
            home, at = f"block {buffer['block']}", buffer["at"]
        first = view["offset"]
        return [((home, at + byte), byte) for byte in range(first, first + 4 * prod(view["shape"]))]

    def put(self, side: str, view: JsonObject, run: int) -> None:
        self.sides[side] |= {place: (view["buffer"], byte, run) for place, byte in self.places(view)}

    def assert_there(self, side: str, view: JsonObject, run: int) -> None:
        for place, byte in self.places(view):
            assert self.sides[side].get(place) == (view["buffer"], byte, run), (side, view)

    def bring(self, side: str, view: JsonObject, run: int) -> None:
        """What a transfer brings is there already: written by its source in this run."""
        other = "gpu" if side == "cpu" else "cpu"
        self.assert_there(other, view, run)
        self.sides[side] |= {place: self.sides[other][place] for place, _ in self.places(view)}


def run_once(program: JsonObject, memory: Memory, chance: random.Random, run: int) -> None:
    for port in program["inputs"]:
        memory.put("cpu", port["view"], run)
    at, signalled = {"cpu": 0, "gpu": 0}, set[int]()
    while True:
        able = [side for side in PROCESSORS if at[side] < len(program[side])]
        able = [s for s in able if program[s][at[s]]["do"] != "wait" or program[s][at[s]]["event"] in signalled]
        if not able:
            break
        side = chance.choice(able)
        step = program[side][at[side]]
        at[side] += 1
        if step["do"] == "signal":
            signalled.add(step["event"])
        elif step["do"] in ("to_gpu", "to_cpu"):
            memory.bring(step["do"].removeprefix("to_"), step["view"], run)
        elif step["do"] == "call":
            for view in step["args"][: -step["outputs"]]:
                memory.assert_there(side, view, run)
            memory.put(side, step["args"][-1], run)
    assert at == {side: len(program[side]) for side in PROCESSORS}, "the lists wait for each other"
    for port in program["outputs"]:
        memory.assert_there("cpu", port["view"], run)


@settings(max_examples=examples(300))
@given(flows(), st.booleans(), st.integers(0, 2**16))
def test_whoever_reads_finds_what_was_written(flow: Dataflow, copied: bool, seed: int) -> None:
    program, chance = program_of(flow), random.Random(seed)
    memory = Memory(program, copied)
    for run in range(4):
        run_once(program, memory, chance, run)


def test_a_part_that_is_not_written_yet_is_not_sent() -> None:
    """The GPU reads its own part of a tensor before the CPU has written the other, which it reads later."""
    roots = [Root((EXTENT,), "float32") for _ in range(4)]
    half = EXTENT // 2
    first, second = Value(1, 0, 0, half), Value(1, 0, half, EXTENT)
    steps = [
        ("gpu", Value(0, 0, 0, EXTENT), first),
        ("gpu", first, Value(2, 0, 0, EXTENT)),
        ("cpu", Value(0, 0, 0, EXTENT), second),
        ("gpu", Value(1, 0, 0, EXTENT), Value(3, 0, 0, EXTENT)),
    ]
    nothing: Any = None
    regions = [Region(str(i), on, "", nothing, [Argument(a)], [b]) for i, (on, a, b) in enumerate(steps)]
    program = program_of(Dataflow(roots, regions, [("x", Value(0))], [Argument(Value(3))]))
    does = [step["do"] for step in program["gpu"]]
    assert does == ["to_gpu", "call", "call", "wait", "to_gpu", "call", "to_cpu"]
    for seed in range(20):
        run_once(program, Memory(program, copied=True), random.Random(seed), 0)


def test_a_tensor_without_axes_crosses_whole() -> None:
    nothing: Any = None
    regions = [
        Region("a", "gpu", "", nothing, [Argument(Value(0))], [Value(1)]),
        Region("b", "cpu", "", nothing, [Argument(Value(1))], [Value(2)]),
    ]
    flow = Dataflow([Root((), "float32") for _ in range(3)], regions, [("x", Value(0))], [Argument(Value(2))])
    program = program_of(flow)
    assert [step["do"] for step in program["cpu"]] == ["wait", "call"]
    run_once(program, Memory(program, copied=True), random.Random(0), 0)
