"""The co-executor's program: two in-order lists over the buffers, with waits only where data crosses.

Buffers with one ``block`` lie in one piece of memory, from byte ``at`` on, and overlap where they are never needed at the
same time (:mod:`.lifetimes`).  A block is of one space.  Where both processors have one memory, buffers with a ``common``
lie together in one piece instead, whatever their space, each from that byte on.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from tvm_codl.build import lifetimes
from tvm_codl.build.dataflow import Dataflow, Root, Value
from tvm_codl.build.kernels import CompiledRegion, Kernels, Operand, memory_shape
from tvm_codl.runtime.about import MemoryBytes

FORMAT = 1
#: Of a buffer's place, in bytes.  No device known to us wants more of a sub-buffer (Adreno, Mali: 128; NVIDIA: 512).
ALIGNMENT = 1024
COMMON_ALIGNMENT = 128  # of an address: OpenCL's largest type, two of TVM's vectors
HOST_ALIGNMENT = 64  # kCpuAlignment of the co-executor, whose blocks are multiples of it
JsonObject = dict[str, Any]


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return int(np.prod(shape, dtype=np.int64)) * max(1, (tvm.DataType(dtype).bits + 7) // 8)


def _stored_name(flow: Dataflow, processor: str, name: str, value: np.ndarray) -> str:
    """Equal weights have one name, in all plans of a library; those of regions that are timed one by one keep theirs."""
    if flow.timed_alone:
        return f"{processor}:{name}"
    return hashlib.blake2b(np.ascontiguousarray(value).view(np.uint8).data, digest_size=16).hexdigest()


def stored_weights(flow: Dataflow, kernels: dict[str, Kernels]) -> dict[str, np.ndarray]:
    """The weights by the names that :func:`write` gives them."""
    return {_stored_name(flow, p, n, value): value for p, k in kernels.items() for n, value in k.weights.items()}


@dataclass
class _Crossing:
    """A range that one region writes and regions of the other processor read."""

    root: int
    axis: int
    lo: int
    hi: int


class _Writer:
    def __init__(self, flow: Dataflow, kernels: dict[str, Kernels]) -> None:
        self.flow, self.kernels = flow, kernels
        self.buffers: list[JsonObject] = []
        self.lists: dict[str, list[JsonObject]] = {"cpu": [], "gpu": []}
        self.root_buffer: dict[int, int] = {}  # a piece of a joined tensor is part of that one's buffer, and has none
        self.weights: list[JsonObject] = []
        self.weight_buffer: dict[tuple[str, str], int] = {}
        self.make_weights()
        self.scratch: dict[tuple[int, int], int] = {}  # by region and slot: what lies in the slot now
        for processor, built in kernels.items() if flow.timed_alone else ():
            self.make_scratch(built.regions, processor)

    def buffer(self, size: int, space: str) -> int:
        self.buffers.append({"bytes": size, "space": space})
        return len(self.buffers) - 1

    def make_weights(self) -> None:
        """A buffer for each weight.  Equal ones have one, which both processors read if both have it: a cut along the
        height leaves the weights whole.  The copies keep no name, and need not be stored."""
        held: dict[str, int] = {}
        for processor, built in self.kernels.items():
            for name, value in built.weights.items():
                stored = _stored_name(self.flow, processor, name, value)
                if stored not in held:
                    held[stored] = self.buffer(max(1, value.nbytes), processor)
                    self.weights.append({"buffer": held[stored], "name": stored})
                elif self.buffers[held[stored]]["space"] != processor:
                    self.buffers[held[stored]]["space"] = "shared"
                self.weight_buffer[processor, name] = held[stored]

    def make_scratch(self, regions: list[CompiledRegion], processor: str) -> None:
        """A buffer for every slot, for all regions' slots together: they are timed one by one."""
        slots = max((len(r.scratch) for r in regions), default=0)
        sizes = [max((r.scratch[k] for r in regions if k < len(r.scratch)), default=1) for k in range(slots)]
        shared = [self.buffer(size, processor) for size in sizes]
        for region in regions:
            self.scratch |= {(region.region, slot): shared[slot] for slot in range(len(region.scratch))}

    def buffer_of(self, root: int) -> int:
        if root not in self.root_buffer:
            tensor = self.flow.roots[root]
            self.root_buffer[root] = self.buffer(_bytes(tensor.shape, tensor.dtype), self.space(root))
        return self.root_buffer[root]

    def space(self, root: int) -> str:
        """Inputs and outputs are the CPU's; a tensor that a GPU region touches is shared, so that it has no copy."""
        touched = {
            r.processor for r in self.flow.regions for v in [*(a.part for a in r.inputs), *r.outputs] if v.root == root
        }
        outside = root in {v.root for _, v in self.flow.inputs} | {a.part.root for a in self.flow.outputs}
        if touched == {"gpu"} and not outside and not self.flow.timed_alone:
            return "gpu"
        return "shared" if "gpu" in touched else "cpu"

    def part_view(self, part: Value, shape: tuple[int, ...] | None = None) -> JsonObject:
        root = self.flow.roots[part.root]
        whole = memory_shape(root, Value(part.root))
        offset = 0
        if part.axis >= 0:
            offset = _bytes(whole, root.dtype) // root.shape[part.axis] * part.lo
        held = shape if shape is not None else memory_shape(root, part)
        return self.view(self.buffer_of(part.root), offset, held, root.dtype)

    @staticmethod
    def view(buffer: int, offset: int, shape: tuple[int, ...], dtype: str) -> JsonObject:
        return {"buffer": buffer, "offset": offset, "shape": list(shape), "dtype": str(dtype)}

    def operand(self, region: int, processor: str, o: Operand) -> JsonObject:
        if o.kind == "input":
            return self.part_view(self.flow.regions[region].inputs[o.index].part, o.shape)
        if o.kind == "output":
            return self.part_view(self.flow.regions[region].outputs[o.index], o.shape)
        if o.kind == "weight":
            return self.view(self.weight_buffer[processor, o.name], 0, o.shape, o.dtype)
        return self.view(self.scratch[region, o.index], 0, o.shape, o.dtype)

    def calls(self, compiled: CompiledRegion, processor: str) -> list[JsonObject]:
        steps: list[JsonObject] = []
        for call in compiled.calls:
            given = len(call.operands) - call.outputs
            args = [self.operand(compiled.region, processor, o) for o in call.operands[:given]]
            for o in call.operands[given:]:
                # Tensors that come one after the other in a slot of TVM's have nothing else in common: each is a buffer.
                if o.kind == "scratch" and not self.flow.timed_alone:
                    self.scratch[compiled.region, o.index] = self.buffer(_bytes(o.shape, o.dtype), processor)
                args.append(self.operand(compiled.region, processor, o))
            at = {"region": compiled.region}
            if call.function:
                steps.append({"do": "call", "function": call.function, "args": args, "outputs": call.outputs, **at})
            else:
                steps.append({"do": "copy", "from": args[0], "to": args[1], **at})
        return steps

    def share_memory(self, ports: list[JsonObject]) -> None:
        """Gives the tensors of each space places in one block, and those of all spaces places in common; ports keep
        their own memory, as do weights: the next run may take the same input again."""
        kept = {view["buffer"] for view in ports} | {weight["buffer"] for weight in self.weights}
        order = lifetimes.Order(([_touching(s) for s in self.lists["cpu"]], [_touching(s) for s in self.lists["gpu"]]))
        sizes = {i: b["bytes"] for i, b in enumerate(self.buffers) if i not in kept}
        spaces = {self.buffers[i]["space"] for i in sizes}
        for block, space in enumerate(("cpu", "gpu", "shared")):
            own = {i: size for i, size in sizes.items() if self.buffers[i]["space"] == space}
            for index, at in lifetimes.places(order, own, ALIGNMENT).items():
                self.buffers[index] |= {"block": block, "at": at}
        for index, at in lifetimes.places(order, sizes if len(spaces) > 1 else {}, COMMON_ALIGNMENT).items():
            self.buffers[index]["common"] = at


def _touching(step: JsonObject) -> lifetimes.Step:
    if step["do"] == "wait":
        return lifetimes.Step(waits=step["event"])
    if step["do"] == "signal":
        return lifetimes.Step(signals=step["event"])
    views = step["args"] if step["do"] == "call" else [step[key] for key in ("from", "to", "view") if key in step]
    touched = [(v["buffer"], v["offset"], _bytes(tuple(v["shape"]), v["dtype"])) for v in views]
    return lifetimes.Step(tuple(lifetimes.Touch(buffer, at, at + size) for buffer, at, size in touched))


def _extent(root: Root, axis: int) -> int:
    """Of a tensor without axes, which crosses whole: 1."""
    return root.shape[axis] if root.shape else 1


def _overlap(a: Value, b: Value, extent: int) -> tuple[int, int] | None:
    """The range of ``a`` that ``b`` covers too, both parts of one root along one axis (or the whole)."""
    axis_extent = extent
    alo, ahi = (a.lo, a.hi) if a.axis >= 0 else (0, axis_extent)
    blo, bhi = (b.lo, b.hi) if b.axis >= 0 else (0, axis_extent)
    lo, hi = max(alo, blo), min(ahi, bhi)
    return (lo, hi) if lo < hi else None


def write(flow: Dataflow, kernels: dict[str, Kernels]) -> JsonObject:
    """The program as JSON values, as ``runtime/native/coexec/program.h`` reads it."""
    writer = _Writer(flow, kernels)
    compiled = {c.region: c for k in kernels.values() for c in k.regions}
    writers: dict[int, list[tuple[int, Value]]] = {}
    for i, region in enumerate(flow.regions):
        for value in region.outputs:
            writers.setdefault(value.root, []).append((i, value))
    for _, value in flow.inputs:
        writers.setdefault(value.root, []).append((-1, value))

    # What each writer's range must show the other processor: the hull of all that is read there.
    crossings: dict[tuple[int, int, str], _Crossing] = {}
    needs: dict[tuple[int, str], list[tuple[int, int, str]]] = {}
    readers = [(i, r.processor, a.part) for i, r in enumerate(flow.regions) for a in r.inputs]
    readers += [(len(flow.regions), "cpu", a.part) for a in flow.outputs]
    for reader, processor, part in readers:
        for source, value in writers.get(part.root, []):
            made_on = "cpu" if source < 0 else flow.regions[source].processor
            if made_on == processor:
                continue
            root = flow.roots[part.root]
            # A tensor without axes crosses whole, as one of one index does.
            axis = next((p.axis for p in (value, part) if p.axis >= 0), root.contiguous_axis() if root.shape else 0)
            both = _overlap(value, part, _extent(root, axis))
            if both is None:
                continue
            key = part.root, source, processor
            if source >= 0:
                needs.setdefault((reader, processor), []).append(key)
            crossing = crossings.setdefault(key, _Crossing(part.root, axis, *both))
            crossing.lo, crossing.hi = min(crossing.lo, both[0]), max(crossing.hi, both[1])

    def transfer(kind: str, crossing: _Crossing) -> JsonObject:
        root = flow.roots[crossing.root]
        whole = (crossing.lo, crossing.hi) == (0, _extent(root, crossing.axis))
        part = Value(crossing.root) if whole else Value(crossing.root, crossing.axis, crossing.lo, crossing.hi)
        return {"do": kind, "view": writer.part_view(part)}

    signal_of: dict[int, int] = {}
    waited = {"cpu": -1, "gpu": -1}
    waits: dict[int, list[int]] = {}
    for reader in range(len(flow.regions) + 1):
        processor = flow.regions[reader].processor if reader < len(flow.regions) else "cpu"
        sources = sorted({source for _, source, _ in needs.get((reader, processor), [])})
        # In-order lists: the latest source stands for all before it.
        if sources and sources[-1] > waited[processor] and reader < len(flow.regions):
            waited[processor] = sources[-1]
            signal_of.setdefault(sources[-1], len(signal_of))
            waits[reader] = [sources[-1]]

    shown: set[tuple[int, int, str]] = set()
    for key, crossing in crossings.items():
        if key[1] < 0 and key[2] == "gpu":
            writer.lists["gpu"].append(transfer("to_gpu", crossing))
            shown.add(key)
    for i, region in enumerate(flow.regions):
        steps = writer.lists[region.processor]
        steps.extend({"do": "wait", "event": signal_of[s]} for s in waits.get(i, []))
        # Only what it reads itself: another part of the same tensor may not be written yet.
        for key in needs.get((i, "gpu"), []) if region.processor == "gpu" else []:
            if key not in shown:
                steps.append(transfer("to_gpu", crossings[key]))
                shown.add(key)
        steps.extend(writer.calls(compiled[i], region.processor))
        if region.processor == "gpu":
            for value in region.outputs:
                key = (value.root, i, "cpu")
                if key in crossings and key not in shown:
                    steps.append(transfer("to_cpu", crossings[key]))
                    shown.add(key)
        if i in signal_of:
            steps.append({"do": "signal", "event": signal_of[i]})
    inputs: list[JsonObject] = [{"name": n, "view": writer.part_view(v)} for n, v in flow.inputs]
    outputs: list[JsonObject] = [
        {"name": f"output{i}", "view": writer.part_view(a.part)} for i, a in enumerate(flow.outputs)
    ]
    if not flow.timed_alone:
        writer.share_memory([port["view"] for port in [*inputs, *outputs]])
    return {
        "format": FORMAT,
        "buffers": writer.buffers,
        "weights": writer.weights,
        "regions": [{"name": r.name, "processor": r.processor} for r in flow.regions],
        "events": len(signal_of),
        "cpu": writer.lists["cpu"],
        "gpu": writer.lists["gpu"],
        "inputs": inputs,
        "outputs": outputs,
    }


def memory_bytes(program: JsonObject) -> MemoryBytes:
    """What a program takes where both processors share one memory; where they have two, or map it, it is more."""
    weights = {weight["buffer"] for weight in program["weights"]}
    blocks: dict[int | str, int] = {}
    for index, buffer in enumerate(program["buffers"]):
        if index not in weights:
            block = "common" if "common" in buffer else buffer.get("block", -1 - index)
            end = buffer.get("common", buffer.get("at", 0)) + buffer["bytes"]
            blocks[block] = max(blocks.get(block, 0), end)
    rounded = sum(-(-size // HOST_ALIGNMENT) * HOST_ALIGNMENT for size in blocks.values())
    return MemoryBytes(sum(program["buffers"][index]["bytes"] for index in weights), rounded)
