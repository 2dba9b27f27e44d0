"""The kernels of all regions of one processor.

Each region is optimised and each kernel compiled by itself, so that other plans and probes find them in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from msgspec.structs import replace
from tvm import relay

from tvm_codl.build.dataflow import Argument, Dataflow, Region
from tvm_codl.build.kernel import Kernel
from tvm_codl.build.kernel_cache import KernelCache
from tvm_codl.build.region import Call, Operand, optimise


@dataclass(frozen=True)
class CompiledRegion:
    region: int
    calls: list[Call]
    scratch: list[int]


@dataclass(frozen=True)
class Kernels:
    """``kernels`` by function; ``weights`` by name; ``regions`` in the processor's order."""

    kernels: dict[str, Kernel]
    weights: dict[str, np.ndarray]
    regions: list[CompiledRegion]


def compile_regions(
    flow: Dataflow, processor: str, target: tvm.target.Target, cache: KernelCache, backwards: bool = False
) -> Kernels | None:
    """Builds every region of ``processor``; ``None`` without any.

    Two processes that build the same regions at the same time share the work if one goes ``backwards``.
    """
    chosen = [i for i, r in enumerate(flow.regions) if r.processor == processor]
    if not chosen:
        return None
    optimised = {
        index: optimise(_function(flow, flow.regions[index]), target, cache)
        for index in (reversed(chosen) if backwards else chosen)
    }
    kernels: dict[str, Kernel] = {}
    weights: dict[str, np.ndarray] = {}
    regions = []
    for index in chosen:
        region, called = optimised[index]
        kernels |= {kernel.function: kernel for kernel in called}
        names = [f"r{index}_w{number}" for number in range(len(region.weights))]
        weights |= {name: weight.array() for name, weight in zip(names, region.weights, strict=True)}
        calls = [replace(call, operands=[_named(o, names) for o in call.operands]) for call in region.calls]
        regions.append(CompiledRegion(index, calls, region.scratch))
    return Kernels(kernels, weights, regions)


def _named(operand: Operand, weights: Sequence[str]) -> Operand:
    return replace(operand, name=weights[operand.index]) if operand.kind == "weight" else operand


def _function(flow: Dataflow, region: Region) -> relay.Function:
    """A region between its buffers' parts as they lie in memory."""
    params, given = [], []
    for number, argument in enumerate(region.inputs):
        root = flow.roots[argument.part.root]
        params.append(relay.var(f"i{number}", shape=root.part_shape(argument.part), dtype=root.dtype))
        given.append(_cropped(params[-1], argument))
    body = relay.bind(region.function.body, dict(zip(region.function.params, given, strict=True)))
    count = len(region.outputs)
    parts = [body] if not isinstance(region.function.ret_type, tvm.ir.TupleType) else [body[i] for i in range(count)]
    return relay.Function(params, relay.Tuple(parts))


def _cropped(param: relay.Var, argument: Argument) -> relay.Expr:
    """The slice of a buffer's part that the region reads."""
    if argument.crop is None:
        return param
    axis, lo, hi = argument.crop
    return relay.strided_slice(param, begin=[lo], end=[hi], strides=[1], axes=[axis])
