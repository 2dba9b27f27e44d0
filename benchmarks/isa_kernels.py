"""A network's GPU kernels as they would go to a phone: their OpenCL C, their work-groups, and what they compute."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import tvm
from isa_compiler import Kernel
from tvm import tir

from tvm_codl.build import dataflow
from tvm_codl.build.kernel_cache import KernelCache
from tvm_codl.build.kernels import compile_regions
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.kernels.target import with_images
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.records.settings import Settings
from tvm_codl.relay.pipeline import Prepared, partition

#: TVM's first phase for custom passes: loops are not unrolled yet.
PHASE = 0
_PREFIX = "tvmgen_codl_"
_DECLARATION = re.compile(r"^__kernel [^{;]*;\n", re.MULTILINE)
_ARITHMETIC = (tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Max, tir.Min)
_FUNCTIONS = ("tir.exp", "tir.log", "tir.tanh", "tir.sigmoid", "tir.sqrt", "tir.rsqrt", "tir.erf", "tir.pow")


class Started(msgspec.Struct, frozen=True):
    """One kernel as TVM lowers it: its work-group, its work-items, the floating-point operations of a call."""

    group: tuple[int, int, int]
    items: int
    flops: int


def kernels_of(prepared: Prepared, gpu: Gpu, dtype: str = "float32", images: int = 0) -> list[Kernel]:
    """The kernels of a network that runs on ``gpu`` alone, heaviest first.

    ``dtype``: in which the GPU computes.  ``images``: the longest side of an image of weights, 0 for weights in buffers.
    """
    plan = uniform_plan(prepared.graph, "gpu")
    plan = msgspec.structs.replace(plan, settings=Settings(gpu_float=dtype))
    flow = dataflow.read(partition(prepared, plan))
    cpu = cpu_target(mattr="+neon", mtriple="aarch64-linux-gnu")
    target = gpu_target(cpu, gpu, images)
    target = with_images(target) if images else target
    started: dict[str, list[Started]] = {}
    with scheduled(), tvm.transform.PassContext(config={"tir.add_lower_pass": [_recorder(started)]}):
        built = compile_regions(flow, "gpu", tvm.target.Target(target, host=cpu), KernelCache())
    if built is None:
        return []
    sources = dict(_split("".join(kernel.source for kernel in built.kernels.values())))
    calls = Counter(call.function for region in built.regions for call in region.calls)
    found = [
        Kernel(name.removeprefix(_PREFIX), sources[name], one.flops * calls[function], one.group, one.items)
        for function, parts in started.items()
        for number, one in enumerate(parts)
        if (name := f"{function}_kernel" + (f"_{number}" if number else "")) in sources
    ]
    return sorted(found, key=lambda kernel: -kernel.flops)


def _split(source: str) -> Iterator[tuple[str, str]]:
    """(name, source) of each kernel."""
    for part in _DECLARATION.sub("", source).split("// Function: ")[1:]:
        name, _, text = part.partition("\n")
        yield name.strip(), text


def _recorder(started: dict[str, list[Started]]) -> Any:
    """A pass for ``tir.add_lower_pass`` that changes nothing and records each function's kernels by its name."""

    @tir.transform.prim_func_pass(opt_level=0)
    def note(function: tir.PrimFunc, module: tvm.IRModule, context: Any) -> tir.PrimFunc:
        name = function.attrs["global_symbol"] if function.attrs and "global_symbol" in function.attrs else ""
        started[str(name)] = [_read(kernel) for kernel in _outermost(function.body)]
        return function

    return PHASE, note


def _outermost(body: tir.Stmt) -> list[tir.AttrStmt]:
    """The outermost statements with a thread extent: each becomes a kernel, in this order."""
    found: list[tir.AttrStmt] = []

    def visit(node: Any) -> bool:
        if isinstance(node, tir.AttrStmt) and node.attr_key == "thread_extent":
            found.append(node)
            return False
        return isinstance(node, tir.Stmt)

    tir.stmt_functor.pre_order_visit(body, visit)
    return found


def _read(kernel: tir.AttrStmt) -> Started:
    extents: dict[str, int] = {}
    flops = 0

    def visit(node: Any, times: int) -> None:
        nonlocal flops
        if isinstance(node, tir.AttrStmt) and node.attr_key == "thread_extent":
            tag, extent = str(node.node.thread_tag), int(node.value)
            inside = tag in extents
            extents.setdefault(tag, extent)
            visit(node.body, times if inside else times * extent)
        elif isinstance(node, tir.For):
            visit(node.body, times * int(node.extent))
        elif isinstance(node, tir.SeqStmt):
            for part in node:
                visit(part, times)
        elif isinstance(node, tir.IfThenElse):
            visit(node.then_case, times)
            if node.else_case is not None:
                visit(node.else_case, times)
        elif isinstance(node, tir.BufferStore | tir.ProducerStore):
            flops += times * _operations(node.value)
        elif hasattr(node, "body"):
            visit(node.body, times)

    visit(kernel, 1)
    group = tuple(extents.get(f"threadIdx.{axis}", 1) for axis in "xyz")
    return Started(group, math.prod(extents.values()), flops)


def _operations(value: tir.PrimExpr) -> int:
    """Additions, products, comparisons and functions of floating-point numbers in an expression."""
    count = 0

    def visit(node: Any) -> None:
        nonlocal count
        if isinstance(node, _ARITHMETIC) or (isinstance(node, tir.Call) and node.op.name.startswith(_FUNCTIONS)):
            count += str(node.dtype).startswith("float")

    tir.stmt_functor.post_order_visit(value, visit)
    return count
