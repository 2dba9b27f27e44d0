"""Each kernel's work-group size and local memory on a GPU, recorded while TVM lowers it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import tir

#: TVM's last phase for custom passes: buffers are flat, and functions still hold their thread extents.
PHASE = 2
_NESTS = (
    tir.AttrStmt,
    tir.Allocate,
    tir.AllocateConst,
    tir.DeclBuffer,
    tir.LetStmt,
    tir.AssertStmt,
    tir.For,
    tir.While,
)


@dataclass(frozen=True)
class Launch:
    """One kernel launch: work-items in a group, and bytes of local memory for each group."""

    work_group: int
    local_memory: int


def make_recorder(launches: dict[str, list[Launch]]) -> Any:
    """A pass for ``tir.add_lower_pass`` that changes nothing and records each function's launches by its name."""

    @tir.transform.prim_func_pass(opt_level=0)
    def note(function: tir.PrimFunc, module: tvm.IRModule, context: Any) -> tir.PrimFunc:
        name = function.attrs["global_symbol"] if function.attrs and "global_symbol" in function.attrs else ""
        if kernels := list(_find_kernels(function.body)):
            launches[str(name)] = [_read_launch(kernel) for kernel in kernels]
        return function

    return PHASE, note


def _is_extent(statement: Any) -> bool:
    return isinstance(statement, tir.AttrStmt) and statement.attr_key == "thread_extent"


def _parts(statement: Any) -> list[Any]:
    """The statements directly inside; an unrolled kernel has thousands of expressions, which are skipped."""
    if isinstance(statement, tir.SeqStmt):
        return list(statement)
    if isinstance(statement, tir.IfThenElse):
        return [part for part in (statement.then_case, statement.else_case) if part is not None]
    if isinstance(statement, _NESTS):
        return [statement.body]
    return []


def _find_kernels(statement: Any) -> Iterator[Any]:
    """The outermost statements with a thread extent: each becomes a kernel."""
    if _is_extent(statement):
        yield statement
        return
    for part in _parts(statement):
        yield from _find_kernels(part)


def _read_launch(root: Any) -> Launch:
    threads: dict[str, int] = {}
    memory = 0
    pending = [root]
    while pending:
        node = pending.pop()
        pending += _parts(node)
        if _is_extent(node) and isinstance(node.value, tir.IntImm):
            tag = str(node.node.thread_tag)
            if tag.startswith("threadIdx"):
                threads[tag] = max(threads.get(tag, 1), int(node.value))
        elif isinstance(node, tir.Allocate) and node.buffer_var.type_annotation.storage_scope == "shared":
            kind = tvm.DataType(node.dtype)
            memory += prod(int(e) for e in node.extents) * max(1, kind.bits * kind.lanes // 8)
    return Launch(prod(threads.values()), memory)
