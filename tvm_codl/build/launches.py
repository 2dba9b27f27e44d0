"""Each kernel's work-group size and local memory on a GPU, recorded while TVM lowers it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import tir

from tvm_codl.build.dataflow import count_bytes

#: TVM's last phase for custom passes: buffers are flat, and functions still hold their thread extents.
PHASE = 2


@dataclass(frozen=True)
class Launch:
    """One kernel launch: work-items in a group, bytes of local memory for each group, and groups."""

    work_group: int
    local_memory: int
    groups: int = 1


def make_recorder(launches: dict[str, list[Launch]]) -> Any:
    """A pass for ``tir.add_lower_pass`` that changes nothing and records each function's launches by its name."""

    @tir.transform.prim_func_pass(opt_level=0)
    def note(function: tir.PrimFunc, module: tvm.IRModule, context: Any) -> tir.PrimFunc:
        name = function.attrs["global_symbol"] if function.attrs and "global_symbol" in function.attrs else ""
        if kernels := _find_kernels(function.body):
            launches[str(name)] = [_read_launch(kernel) for kernel in kernels]
        return function

    return PHASE, note


def _is_extent(node: Any) -> bool:
    return isinstance(node, tir.AttrStmt) and node.attr_key == "thread_extent"


def _has_parts(node: Any) -> bool:
    """An unrolled kernel has thousands of expressions, which need no visit."""
    return isinstance(node, tir.Stmt) and not isinstance(node, tir.BufferStore | tir.Evaluate)


def _find_kernels(body: Any) -> list[Any]:
    """The outermost statements with a thread extent: each becomes a kernel."""
    kernels: list[Any] = []

    def visit(node: Any) -> bool:
        if _is_extent(node):
            kernels.append(node)
            return False
        return _has_parts(node)

    tir.stmt_functor.pre_order_visit(body, visit)
    return kernels


def _read_launch(kernel: Any) -> Launch:
    threads: dict[str, int] = {}
    memory = 0

    def visit(node: Any) -> bool:
        nonlocal memory
        if _is_extent(node) and isinstance(node.value, tir.IntImm):
            tag = str(node.node.thread_tag)
            threads[tag] = max(threads.get(tag, 1), int(node.value))
        elif isinstance(node, tir.Allocate) and node.buffer_var.type_annotation.storage_scope == "shared":
            memory += count_bytes([int(e) for e in node.extents], node.dtype)
        return _has_parts(node)

    tir.stmt_functor.pre_order_visit(kernel, visit)
    inside = prod(extent for tag, extent in threads.items() if tag.startswith("threadIdx"))
    return Launch(inside, memory, prod(threads.values()) // inside)
