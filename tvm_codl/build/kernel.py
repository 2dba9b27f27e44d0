"""A fused operator compiled by itself: its host code and, on a GPU, its OpenCL code.

It is named by what it computes, so a network, a plan and a probe that need the same kernel have one.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import tvm
from tvm import relay, tir
from tvm.relay.backend import te_compiler

from tvm_codl.build.dataflow import count_bytes
from tvm_codl.build.kernel_cache import KernelCache
from tvm_codl.build.launches import Launch, make_recorder

# LLVM 22 rejects TVM's debug information on vectors from common-subexpression elimination.  A kernel's checks of its arguments
# are left out: only a library's program calls it, and for a CPU they were a third of the time to compile it.
PASS_CONFIG = {"tir.disable_cse_tir": True, "tir.disable_assert": True}
#: A CPU kernel's buffers up to so many bytes are on the stack.  TVM keeps 1 KB there; for more it asks its pool, at each item
#: of the kernel and also for a register tile, which needs no memory: that was 4 % of PoseNet's time with AVX-512.
STACK_BYTES = 8 * 1024


class Kernel(msgspec.Struct, frozen=True):
    """``function`` in ``code``, an object file; on a GPU the OpenCL ``source`` behind it, TVM's ``info`` on each of its
    OpenCL kernels by name, and how these are launched."""

    function: str
    code: bytes
    source: str = ""
    info: dict[str, Any] = {}
    launches: tuple[Launch, ...] = ()


def digest_of(expression: relay.Function, target: tvm.target.Target) -> str:
    """What tells one function from another, its constants included."""
    digest = hashlib.sha256(f"{target}|{target.host}|".encode())
    digest.update(str(tvm.ir.structural_hash(expression, map_free_vars=True)).encode())
    digest.update(expression.astext(show_meta_data=False).encode())

    def add(node: relay.Expr) -> None:
        if isinstance(node, relay.Constant):
            digest.update(node.data.numpy().tobytes())

    relay.analysis.post_order_visit(expression, add)
    return digest.hexdigest()


def compile_kernel(function: relay.Function, digest: str, target: tvm.target.Target, cache: KernelCache) -> Kernel:
    """The kernel of a primitive function of that digest for a target with a host; compiled where the cache lacks it."""
    found = cache.get(f"{digest}.kernel", Kernel)
    if found is not None:
        return found
    launches: dict[str, list[Launch]] = {}
    others = tvm.transform.PassContext.current().config.get("tir.add_lower_pass", [])  # the caller's
    config = {**PASS_CONFIG, "tir.add_lower_pass": [*others, make_recorder(launches)]}
    compiler = te_compiler.get()
    compiler.clear()  # what it remembers would not be lowered, and its launches not be seen
    with tvm.transform.PassContext(opt_level=3, config=config):
        lowered = compiler.lower(function, target, f"codl_{digest[:16]}")
        given = str(lowered.prim_fn_var.name_hint)
        # TVM numbers the second of a name in one process.
        name = re.sub(r"_\d+$", "", given)
        primitive = lowered.funcs[given].with_attr("global_symbol", name)
        built = generate_code(tvm.IRModule({name: primitive}), target)
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "code.o"
        built.save(str(code))
        source, info = "", {}
        for device in built.imported_modules:
            device.save(str(Path(folder) / "device.cl"))
            source = (Path(folder) / "device.cl").read_text()
            info = json.loads((Path(folder) / "device.tvm_meta.json").read_text())["func_info"]
        kernel = Kernel(name, code.read_bytes(), source, info, tuple(launches.get(given, ())))
    cache.put(f"{digest}.kernel", kernel)
    return kernel


def generate_code(lowered: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """The code of functions that are lowered for a target with a host; tvm.build would lower them once more."""
    host = target.host
    if target.kind.name == "llvm":
        lowered = tvm.IRModule({name: _on_stack(function) for name, function in lowered.functions.items()})
    elif target.kind.name == "opencl":  # the host's code passes arguments on: to optimise it took longer than all else
        host = tvm.target.Target({**host.export(), "opt-level": 0})
    return tvm.get_global_func("driver.tir_to_runtime")({tvm.target.Target(target, host): lowered}, host)


def _on_stack(function: tir.PrimFunc) -> tir.PrimFunc:
    """``function`` with its buffers of up to :data:`STACK_BYTES` left to LLVM."""

    def keep(node: tir.Allocate) -> tir.Allocate | None:
        known = all(isinstance(extent, tir.IntImm) for extent in node.extents)
        if not known or count_bytes([int(extent) for extent in node.extents], node.dtype) > STACK_BYTES:
            return None
        left = {**(node.annotations or {}), "disable_lower_builtin": True}
        return tir.Allocate(node.buffer_var, node.dtype, node.extents, node.condition, node.body, left)

    body = tir.stmt_functor.ir_transform(function.body, None, keep, ["tir.Allocate"])
    return function.with_body(body)


def host_modules(kernels: Iterable[Kernel]) -> list[tvm.runtime.Module]:
    """The host code of each kernel as a module, which runs once it is exported with the one that imports it."""
    modules = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.o"
        for kernel in kernels:
            path.write_bytes(kernel.code)
            modules.append(tvm.runtime.load_static_library(str(path), [kernel.function]))
    return modules


def opencl_module(kernels: Iterable[Kernel]) -> tvm.runtime.Module | None:
    """The OpenCL code of all these kernels as one module; None without any.  The plugin must be loaded."""
    with_source = [kernel for kernel in kernels if kernel.source]
    if not with_source:
        return None
    info = {name: each for kernel in with_source for name, each in kernel.info.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "device.cl"
        path.write_text("".join(kernel.source for kernel in with_source))
        path.with_suffix(".tvm_meta.json").write_text(json.dumps({"tvm_version": tvm.__version__, "func_info": info}))
        return tvm.runtime.load_module(str(path))
