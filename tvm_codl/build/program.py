"""The co-executor's program: two in-order lists over the buffers, with waits only where data crosses.

Buffers of one ``block`` share a piece of memory of one space; each starts at byte ``at``, and they overlap where they are
never needed at the same time (:mod:`.lifetimes`).  If both processors share one memory, buffers with a ``common`` lie in
one piece instead, whatever their space, each from that byte on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from tvm_codl.build import lifetimes
from tvm_codl.build.dataflow import Dataflow, Root, Value, count_bytes
from tvm_codl.build.kernels import CompiledRegion, Kernels
from tvm_codl.build.region import Operand
from tvm_codl.graph.slab import outermost
from tvm_codl.runtime.about import MemoryBytes

FORMAT = 2
#: Of a buffer's offset, in bytes.  No known device needs more for a sub-buffer (Adreno, Mali: 128; NVIDIA: 512).
ALIGNMENT = 1024
COMMON_ALIGNMENT = 128  # OpenCL's largest type, two of TVM's vectors
HOST_ALIGNMENT = 64  # the co-executor's kCpuAlignment; its blocks are multiples of it
JsonObject = dict[str, Any]


def _stored_name(flow: Dataflow, processor: str, name: str, value: np.ndarray) -> str:
    """Equal weights have one name in all plans of a library; weights of regions timed alone keep their own."""
    if flow.timed_alone:
        return f"{processor}:{name}"
    return hashlib.blake2b(np.ascontiguousarray(value).view(np.uint8).data, digest_size=16).hexdigest()


def stored_weights(flow: Dataflow, kernels: dict[str, Kernels]) -> dict[str, np.ndarray]:
    """The weights by their names in the program."""
    return {_stored_name(flow, p, n, value): value for p, k in kernels.items() for n, value in k.weights.items()}


#: A root, the region that writes it (-1: the user's input), and the processor that reads it.
_Key = tuple[int, int, str]


class _Writer:
    def __init__(self, flow: Dataflow, kernels: dict[str, Kernels]) -> None:
        self.flow, self.kernels = flow, kernels
        self.buffers: list[JsonObject] = []
        self.lists: dict[str, list[JsonObject]] = {"cpu": [], "gpu": []}
        self.root_buffer: dict[int, int] = {}  # a piece of a joined tensor has no buffer of its own
        self.weights: list[JsonObject] = []
        self.weight_buffer: dict[tuple[str, str], int] = {}
        self.make_weights()
        self.scratch: dict[tuple[int, int], int] = {}  # the buffer in a slot now, by region and slot
        for processor, built in kernels.items() if flow.timed_alone else ():
            self.make_scratch(built.regions, processor)

    def buffer(self, size: int, space: str) -> int:
        self.buffers.append({"bytes": size, "space": space})
        return len(self.buffers) - 1

    def make_weights(self) -> None:
        """A buffer for each weight.  Equal weights have one: a cut along the height gives both processors the same."""
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
        """A buffer for every slot, shared by all regions: each is timed alone."""
        slots = max((len(r.scratch) for r in regions), default=0)
        sizes = [max((r.scratch[k] for r in regions if k < len(r.scratch)), default=1) for k in range(slots)]
        shared = [self.buffer(size, processor) for size in sizes]
        for region in regions:
            self.scratch |= {(region.region, slot): shared[slot] for slot in range(len(region.scratch))}

    def buffer_of(self, root: int) -> int:
        if root not in self.root_buffer:
            tensor = self.flow.roots[root]
            self.root_buffer[root] = self.buffer(count_bytes(tensor.shape, tensor.dtype), self.space(root))
        return self.root_buffer[root]

    def space(self, root: int) -> str:
        """The CPU's for inputs and outputs; shared for tensors that a GPU region touches, to avoid a copy."""
        touched = {
            r.processor for r in self.flow.regions for v in [*(a.part for a in r.inputs), *r.outputs] if v.root == root
        }
        outside = root in {v.root for _, v in self.flow.inputs} | {a.part.root for a in self.flow.outputs}
        if touched == {"gpu"} and not outside and not self.flow.timed_alone:
            return "gpu"
        return "shared" if "gpu" in touched else "cpu"

    def part_view(self, part: Value, shape: tuple[int, ...] | None = None) -> JsonObject:
        root = self.flow.roots[part.root]
        offset = 0
        if part.axis >= 0:
            offset = count_bytes(root.shape, root.dtype) // root.shape[part.axis] * part.lo
        held = shape if shape is not None else root.part_shape(part)
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
                # Successive tensors in one of TVM's slots are independent: each gets a buffer.
                if o.kind == "scratch" and not self.flow.timed_alone:
                    self.scratch[compiled.region, o.index] = self.buffer(count_bytes(o.shape, o.dtype), processor)
                args.append(self.operand(compiled.region, processor, o))
            at = {"region": compiled.region}
            if call.function:
                steps.append({"do": "call", "function": call.function, "args": args, "outputs": call.outputs, **at})
            else:
                steps.append({"do": "copy", "from": args[0], "to": args[1], **at})
        return steps

    def share_memory(self, ports: list[JsonObject]) -> None:
        """Places the tensors of each space in one block, and those of all spaces in a common one.

        Ports and weights keep their own memory: the next run may reuse the input."""
        kept = {view["buffer"] for view in ports} | {weight["buffer"] for weight in self.weights}
        order = lifetimes.Order(
            ([_lifetime_step(s) for s in self.lists["cpu"]], [_lifetime_step(s) for s in self.lists["gpu"]])
        )
        sizes = {i: b["bytes"] for i, b in enumerate(self.buffers) if i not in kept}
        spaces = {self.buffers[i]["space"] for i in sizes}
        for block, space in enumerate(("cpu", "gpu", "shared")):
            own = {i: size for i, size in sizes.items() if self.buffers[i]["space"] == space}
            for index, at in lifetimes.place_buffers(order, own, ALIGNMENT).items():
                self.buffers[index] |= {"block": block, "at": at}
        for index, at in lifetimes.place_buffers(order, sizes if len(spaces) > 1 else {}, COMMON_ALIGNMENT).items():
            self.buffers[index]["common"] = at

    def find_crossings(self) -> tuple[dict[_Key, Value], dict[int, list[_Key]]]:
        """The ranges that cross to the other processor, each the hull of all that it reads there; and which of them each
        region reads, the user's end last."""
        flow = self.flow
        writers: dict[int, list[tuple[int, Value]]] = {}
        for i, region in enumerate(flow.regions):
            for value in region.outputs:
                writers.setdefault(value.root, []).append((i, value))
        for _, value in flow.inputs:
            writers.setdefault(value.root, []).append((-1, value))
        crossings: dict[_Key, Value] = {}
        needs: dict[int, list[_Key]] = {}
        readers = [(i, r.processor, a.part) for i, r in enumerate(flow.regions) for a in r.inputs]
        readers += [(len(flow.regions), "cpu", a.part) for a in flow.outputs]
        for reader, processor, part in readers:
            root = flow.roots[part.root]
            for source, value in writers.get(part.root, []):
                # A tensor without axes crosses whole, like one of extent 1.
                axis = next((p.axis for p in (value, part) if p.axis >= 0), outermost(root.shape))
                both = _overlap(value, part, _extent(root, axis))
                if both is None or processor == ("cpu" if source < 0 else flow.regions[source].processor):
                    continue
                key = part.root, source, processor
                if source >= 0:
                    needs.setdefault(reader, []).append(key)
                hull = crossings.get(key, Value(part.root, axis, *both))
                crossings[key] = replace(hull, lo=min(hull.lo, both[0]), hi=max(hull.hi, both[1]))
        return crossings, needs

    def transfer(self, kind: str, part: Value) -> JsonObject:
        whole = (part.lo, part.hi) == (0, _extent(self.flow.roots[part.root], part.axis))
        return {"do": kind, "view": self.part_view(Value(part.root) if whole else part)}

    def write_lists(self) -> int:
        """Fills both lists.  Returns the number of events."""
        flow = self.flow
        crossings, needs = self.find_crossings()
        # Lists are in order: the latest source covers all before it.
        events: dict[int, int] = {}
        waits: dict[int, int] = {}
        waited = {"cpu": -1, "gpu": -1}
        for reader, region in enumerate(flow.regions):
            source = max((source for _, source, _ in needs.get(reader, [])), default=-1)
            if source > waited[region.processor]:
                waited[region.processor] = source
                waits[reader] = events.setdefault(source, len(events))
        compiled = {c.region: c for k in self.kernels.values() for c in k.regions}
        sent: set[_Key] = set()

        def send(kind: str, keys: Iterable[_Key]) -> None:
            for key in keys:
                if key not in sent:
                    self.lists["gpu"].append(self.transfer(kind, crossings[key]))
                    sent.add(key)

        send("to_gpu", [key for key in crossings if key[1] < 0 and key[2] == "gpu"])
        for i, region in enumerate(flow.regions):
            steps = self.lists[region.processor]
            if i in waits:
                steps.append({"do": "wait", "event": waits[i]})
            if region.processor == "gpu":
                # Only what it reads itself: another part of the same tensor may not be written yet.
                send("to_gpu", needs.get(i, []))
            steps.extend(self.calls(compiled[i], region.processor))
            if region.processor == "gpu":
                outputs = [(value.root, i, "cpu") for value in region.outputs]
                send("to_cpu", [key for key in outputs if key in crossings])
            if i in events:
                steps.append({"do": "signal", "event": events[i]})
        return len(events)


def _lifetime_step(step: JsonObject) -> lifetimes.Step:
    if step["do"] == "wait":
        return lifetimes.Step(waits=step["event"])
    if step["do"] == "signal":
        return lifetimes.Step(signals=step["event"])
    views = step["args"] if step["do"] == "call" else [step[key] for key in ("from", "to", "view") if key in step]
    touched = [(v["buffer"], v["offset"], count_bytes(tuple(v["shape"]), v["dtype"])) for v in views]
    return lifetimes.Step(tuple(lifetimes.Touch(buffer, at, at + size) for buffer, at, size in touched))


def _extent(root: Root, axis: int) -> int:
    """1 for a tensor without axes, which crosses whole."""
    return root.shape[axis] if root.shape else 1


def _overlap(a: Value, b: Value, extent: int) -> tuple[int, int] | None:
    """The common range of two parts of one root along one axis of that extent; None without one."""
    alo, ahi = (a.lo, a.hi) if a.axis >= 0 else (0, extent)
    blo, bhi = (b.lo, b.hi) if b.axis >= 0 else (0, extent)
    lo, hi = max(alo, blo), min(ahi, bhi)
    return (lo, hi) if lo < hi else None


def write(flow: Dataflow, kernels: dict[str, Kernels]) -> JsonObject:
    """The program as JSON values, as ``runtime/native/coexec/program.h`` reads it."""
    writer = _Writer(flow, kernels)
    events = writer.write_lists()
    inputs: list[JsonObject] = [{"name": name, "view": writer.part_view(value)} for name, value in flow.inputs]
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
        "events": events,
        "cpu": writer.lists["cpu"],
        "gpu": writer.lists["gpu"],
        "inputs": inputs,
        "outputs": outputs,
    }


def memory_bytes(program: JsonObject) -> MemoryBytes:
    """A program's memory if both processors share one; with two, or with mapping, it needs more."""
    weights = {weight["buffer"] for weight in program["weights"]}
    blocks: dict[int | str, int] = {}
    for index, buffer in enumerate(program["buffers"]):
        if index not in weights:
            block = "common" if "common" in buffer else buffer.get("block", -1 - index)
            end = buffer.get("common", buffer.get("at", 0)) + buffer["bytes"]
            blocks[block] = max(blocks.get(block, 0), end)
    rounded = sum(-(-size // HOST_ALIGNMENT) * HOST_ALIGNMENT for size in blocks.values())
    return MemoryBytes(sum(program["buffers"][index]["bytes"] for index in weights), rounded)
