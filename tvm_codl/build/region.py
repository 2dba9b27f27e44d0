"""One region, optimised by Relay: its kernels in order, what each reads and writes, and its weights as kernels read them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import tvm
from tvm import relay

from tvm_codl.build.dataflow import count_bytes, shape_of
from tvm_codl.build.kernel import PASS_CONFIG, Kernel, compile_kernel, digest_of
from tvm_codl.build.kernel_cache import KernelCache
from tvm_codl.build.order import in_order
from tvm_codl.build.pack import PACK
from tvm_codl.build.reshapes import MOVE_RESHAPES


class Operand(msgspec.Struct, frozen=True):
    """A kernel's argument: ``kind`` is input, output, weight or scratch, ``index`` its number in the region."""

    kind: str
    index: int
    shape: tuple[int, ...]
    dtype: str
    name: str = ""


class Call(msgspec.Struct, frozen=True):
    """One call of a kernel; ``function`` '' is a copy of the first operand to the second."""

    function: str
    operands: list[Operand]
    outputs: int


class Weight(msgspec.Struct, frozen=True):
    """A tensor's bytes."""

    shape: tuple[int, ...]
    dtype: str
    data: bytes

    def array(self) -> np.ndarray:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


class OptimisedRegion(msgspec.Struct, frozen=True):
    """``scratch`` are the bytes of the tensors between the calls, ``kernels`` the digests of what they call."""

    calls: list[Call]
    scratch: list[int]
    weights: list[Weight]
    kernels: list[str]


class _Tensor(NamedTuple):
    """Where a tensor is: ``kind`` as an operand's, or call; the parameter's, weight's or call's number; the call's output."""

    kind: str
    number: int
    output: int = 0


def _passes(target: tvm.target.Target, widest: int) -> tvm.transform.Pass:
    """For a network that is simplified already, whose widest tuple has so many fields.  ``relay.optimize`` takes ten times as
    long, as each pass infers all types anew."""
    most = int(target.max_function_args)
    return tvm.transform.Sequential(
        [
            PACK,
            relay.transform.InferType(),
            MOVE_RESHAPES,
            relay.transform.FoldConstant(),
            # A kernel has arguments beside the tuple's.
            *([relay.transform.SplitArgs(most)] if 0 < most < 2 * widest else []),
            relay.transform.FuseOps(),
            relay.transform.InferType(),
        ]
    )


def optimise(
    function: relay.Function, target: tvm.target.Target, cache: KernelCache
) -> tuple[OptimisedRegion, list[Kernel]]:
    """A region with one field of its result for each output, and its kernels, for a target with a host."""
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(function))
    name = f"{digest_of(mod['main'], target)}.region"
    region = cache.get(name, OptimisedRegion)
    if region is not None:
        kernels = [cache.get(f"{digest}.kernel", Kernel) for digest in region.kernels]
        if None not in kernels:
            return region, [kernel for kernel in kernels if kernel is not None]
    with target, tvm.transform.PassContext(opt_level=3, config=PASS_CONFIG):
        mod = _passes(target, _widest(mod["main"]))(mod)
    reader = _Reader(mod["main"], target, cache)
    region = reader.read()
    cache.put(name, region)
    return region, list(reader.kernels.values())


def _widest(function: relay.Function) -> int:
    return max((len(each.fields) for each in in_order(function.body) if isinstance(each, relay.Tuple)), default=0)


class _Reader:
    def __init__(self, function: relay.Function, target: tvm.target.Target, cache: KernelCache) -> None:
        self.function, self.target, self.cache = function, target, cache
        self.weights: list[Weight] = []
        self.kernels: dict[str, Kernel] = {}  # by digest
        self.made: list[tuple[str, list[tuple[_Tensor, relay.Type]], list[relay.Type]]] = []
        self.tensors: dict[relay.Expr, list[_Tensor]] = {
            param: [_Tensor("input", number)] for number, param in enumerate(self.function.params)
        }

    def read(self) -> OptimisedRegion:
        body = self.function.body
        for expression in in_order(body):
            if expression not in self.tensors:
                self.tensors[expression] = self.visit(expression)
        heads, types = self.tensors[body], list(body.checked_type.fields)
        outputs: dict[_Tensor, int] = {}
        copies = []
        for position, head in enumerate(heads):
            if head.kind != "call" or head in outputs:
                copies.append((head, types[position], position))
            else:
                outputs[head] = position
        sizes: dict[_Tensor, int] = {}
        for number, (_, _, results) in enumerate(self.made):
            for output, type_ in enumerate(results):
                tensor = _Tensor("call", number, output)
                if tensor not in outputs:
                    sizes[tensor] = count_bytes(shape_of(type_), str(type_.dtype))
        # Slots by falling size, so that regions of one processor can share them.
        slots = {tensor: slot for slot, tensor in enumerate(sorted(sizes, key=lambda t: (-sizes[t], t)))}

        def operand(tensor: _Tensor, type_: relay.Type) -> Operand:
            kind, index = tensor.kind, tensor.number
            if tensor in outputs:
                kind, index = "output", outputs[tensor]
            elif tensor in slots:
                kind, index = "scratch", slots[tensor]
            return Operand(kind, index, shape_of(type_), str(type_.dtype))

        calls = []
        for number, (name, given, results) in enumerate(self.made):
            written = [operand(_Tensor("call", number, k), type_) for k, type_ in enumerate(results)]
            calls.append(Call(name, [*(operand(*each) for each in given), *written], len(results)))
        for head, type_, position in copies:
            source = operand(head, type_)
            calls.append(Call("", [source, Operand("output", position, source.shape, source.dtype)], 1))
        return OptimisedRegion(calls, sorted(sizes.values(), reverse=True), self.weights, list(self.kernels))

    def visit(self, expression: relay.Expr) -> list[_Tensor]:
        """The tensors of an expression whose parts were visited."""
        if isinstance(expression, relay.Tuple):
            return [tensor for field in expression.fields for tensor in self.tensors[field]]
        if isinstance(expression, relay.TupleGetItem):
            return [self.tensors[expression.tuple_value][expression.index]]
        if isinstance(expression, relay.Constant):
            value = expression.data.numpy()
            self.weights.append(Weight(value.shape, str(value.dtype), value.tobytes()))
            return [_Tensor("weight", len(self.weights) - 1)]
        if not isinstance(expression, relay.Call) or not isinstance(expression.op, relay.Function):
            raise ValueError(f"Relay left no kernel for {type(expression).__name__}")
        given = [
            each
            for argument in expression.args
            for each in zip(self.tensors[argument], _types(argument.checked_type), strict=True)
        ]
        if expression.op.attrs is not None and "relay.reshape_only" in expression.op.attrs:
            return [given[0][0]]  # the same bytes
        digest = digest_of(expression.op, self.target)
        kernel = self.kernels.get(digest) or compile_kernel(expression.op, digest, self.target, self.cache)
        self.kernels[digest] = kernel
        results = _types(expression.checked_type)
        self.made.append((kernel.function, given, results))
        return [_Tensor("call", len(self.made) - 1, output) for output in range(len(results))]


def _types(type_: relay.Type) -> list[relay.Type]:
    return list(type_.fields) if isinstance(type_, tvm.ir.TupleType) else [type_]
