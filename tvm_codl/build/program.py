"""The co-executor's program: two in-order lists over the buffers, with waits only where data crosses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from tvm_codl.build.dataflow import Dataflow, Value
from tvm_codl.build.kernels import CompiledRegion, Kernels, Operand, memory_shape

FORMAT = 1
JsonObject = dict[str, Any]


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return int(np.prod(shape, dtype=np.int64)) * max(1, (tvm.DataType(dtype).bits + 7) // 8)


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
        self.events = 0
        self.root_buffer = [self.buffer(_bytes(r.shape, r.dtype), self.space(i)) for i, r in enumerate(flow.roots)]
        self.weights: list[JsonObject] = []
        self.weight_buffer: dict[tuple[str, str], int] = {}
        for processor, built in kernels.items():
            for name, value in built.weights.items():
                index = self.buffer(max(1, value.nbytes), processor)
                self.weight_buffer[processor, name] = index
                self.weights.append({"buffer": index, "name": f"{processor}:{name}"})
        self.scratch = {p: self.shared_scratch(k.regions, p) for p, k in kernels.items()}

    def buffer(self, size: int, space: str) -> int:
        self.buffers.append({"bytes": size, "space": space})
        return len(self.buffers) - 1

    def shared_scratch(self, regions: list[CompiledRegion], processor: str) -> list[int]:
        slots = max((len(r.scratch) for r in regions), default=0)
        sizes = [max((r.scratch[k] for r in regions if k < len(r.scratch)), default=1) for k in range(slots)]
        return [self.buffer(size, processor) for size in sizes]

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
        return self.view(self.root_buffer[part.root], offset, held, root.dtype)

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
        return self.view(self.scratch[processor][o.index], 0, o.shape, o.dtype)

    def calls(self, compiled: CompiledRegion, processor: str) -> list[JsonObject]:
        steps: list[JsonObject] = []
        for call in compiled.calls:
            args = [self.operand(compiled.region, processor, o) for o in call.operands]
            at = {"region": compiled.region}
            if call.function:
                steps.append({"do": "call", "function": call.function, "args": args, "outputs": call.outputs, **at})
            else:
                steps.append({"do": "copy", "from": args[0], "to": args[1], **at})
        return steps


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

    def extent_axis(*parts: Value) -> int:
        return next((p.axis for p in parts if p.axis >= 0), flow.roots[parts[0].root].contiguous_axis())

    # What each writer's range must show the other processor: the hull of all that is read there.
    crossings: dict[tuple[int, int, str], _Crossing] = {}
    needs: dict[tuple[int, str], list[int]] = {}
    readers = [(i, r.processor, a.part) for i, r in enumerate(flow.regions) for a in r.inputs]
    readers += [(len(flow.regions), "cpu", a.part) for a in flow.outputs]
    for reader, processor, part in readers:
        for source, value in writers.get(part.root, []):
            made_on = "cpu" if source < 0 else flow.regions[source].processor
            if made_on == processor:
                continue
            axis = extent_axis(value, part)
            both = _overlap(value, part, flow.roots[part.root].shape[axis])
            if both is None:
                continue
            if source >= 0:
                needs.setdefault((reader, processor), []).append(source)
            crossing = crossings.setdefault((part.root, source, processor), _Crossing(part.root, axis, *both))
            crossing.lo, crossing.hi = min(crossing.lo, both[0]), max(crossing.hi, both[1])

    def transfer(kind: str, crossing: _Crossing) -> JsonObject:
        root = flow.roots[crossing.root]
        whole = (crossing.lo, crossing.hi) == (0, root.shape[crossing.axis])
        part = Value(crossing.root) if whole else Value(crossing.root, crossing.axis, crossing.lo, crossing.hi)
        return {"do": kind, "view": writer.part_view(part)}

    order = {
        i: k for p in ("cpu", "gpu") for k, i in enumerate(i for i, r in enumerate(flow.regions) if r.processor == p)
    }
    signal_of: dict[int, int] = {}
    waited = {"cpu": -1, "gpu": -1}
    waits: dict[int, list[int]] = {}
    for reader in range(len(flow.regions) + 1):
        processor = flow.regions[reader].processor if reader < len(flow.regions) else "cpu"
        sources = sorted(set(needs.get((reader, processor), [])), key=lambda s: order[s])
        # In-order lists: the latest source stands for all before it.
        if sources and order[sources[-1]] > waited[processor] and reader < len(flow.regions):
            waited[processor] = order[sources[-1]]
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
        if region.processor == "gpu":
            for argument in region.inputs:
                for source, _ in writers.get(argument.part.root, []):
                    key = (argument.part.root, source, "gpu")
                    if key in crossings and key not in shown:
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
    return {
        "format": FORMAT,
        "buffers": writer.buffers,
        "weights": writer.weights,
        "regions": [{"name": r.name, "processor": r.processor} for r in flow.regions],
        "events": len(signal_of),
        "cpu": writer.lists["cpu"],
        "gpu": writer.lists["gpu"],
        "inputs": [{"name": n, "view": writer.part_view(v)} for n, v in flow.inputs],
        "outputs": [{"name": f"output{i}", "view": writer.part_view(a.part)} for i, a in enumerate(flow.outputs)],
    }
