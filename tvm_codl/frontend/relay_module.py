"""``from_relay``: a Relay module of any frontend → the network in NHWC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tvm
from tvm import relay

from tvm_codl.errors import CodlError, UserError
from tvm_codl.frontend.relay_reference import RelayReference
from tvm_codl.relay.calls import as_constant, is_call
from tvm_codl.relay.model import LoadedModel
from tvm_codl.relay.pipeline import run, simplify
from tvm_codl.relay.walk import in_order

T = TypeVar("T")

#: What the graph executor itself needs: static shapes, and operators instead of those of ``qnn``.
TYPED = (
    relay.transform.InferType(),
    relay.transform.DynamicToStatic(),
    relay.qnn.transform.CanonicalizeOps(),
    relay.transform.InferType(),
)


def from_relay(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Sequence[int] | np.ndarray] | None = None,
    name: str = "relay",
) -> LoadedModel:
    """The network in ``mod``, in any layout, with the weights ``params`` by name; neither is changed.

    The variables of ``@main`` that ``params`` does not name are the network's inputs.  For any of them ``inputs`` may
    hold a shape, which fixes a dynamic one, or an array, which is the sample input too.  Plans and tables call the
    network ``name``.

    The result is like :func:`~tvm_codl.frontend.load.load_model`'s; the reference answers are those of TVM's executor for
    ``mod`` as it is given.  Raises :class:`UserError` for a weight or an input that does not fit, and, with the operator's
    name, for control flow, algebraic data types, several functions, and shapes that are known only as the network runs.
    """
    if not name or "/" in name:
        raise UserError(f"{name!r} is no name for a network", next='from_relay(mod, params, name="my_network")')
    module = _bind(_plain_main(mod), params or {}, inputs or {})
    main = module["main"]
    for expr in in_order(main.body):
        _check_static(expr)
    described = tuple(
        (str(var.name_hint), tuple(int(extent) for extent in var.checked_type.shape), str(var.checked_type.dtype))
        for var in main.params
    )
    samples = {key: value.copy() for key, value in (inputs or {}).items() if isinstance(value, np.ndarray)}
    outputs = _output_names(main, len(_tensors(main.body.checked_type)))
    simple = _checked("simplified", lambda: simplify(module))
    return LoadedModel(name, described, outputs, simple, RelayReference(module), samples=samples)


def _plain_main(mod: tvm.IRModule) -> relay.Function:
    """``@main``, if it is a plain graph of operators."""
    if not isinstance(mod, tvm.IRModule) or not any(v.name_hint == "main" for v in mod.get_global_vars()):
        what = "it has no @main" if isinstance(mod, tvm.IRModule) else f"it is a {type(mod).__name__}"
        raise UserError("this is no Relay module of a network", what, "tvm.IRModule.from_expr(function)")
    main = mod["main"]
    if not isinstance(main, relay.Function):
        raise UserError("this is no Relay module of a network", f"@main is a {type(main).__name__}")
    for expr in in_order(main.body):
        if isinstance(expr, relay.Call) and not is_call(expr):
            raise UserError(
                f"the network calls {_callee(expr.op)}",
                "only operators can be planned",
                "export the model without control flow, as one function",
            )
    names = [str(var.name_hint) for var in main.params]
    for var in names:
        if not var or names.count(var) > 1:
            raise UserError(f"{names.count(var)} variables of @main are named {var!r}", next="name each otherwise")
    return main


def _callee(op: relay.Expr) -> str:
    if isinstance(op, relay.GlobalVar):
        return f"the function @{op.name_hint}"
    if isinstance(op, tvm.ir.adt.Constructor):
        return f"{op.name_hint}, the constructor of an algebraic data type"
    return f"a {type(op).__name__} inside of @main"


def _bind(main: relay.Function, params: Mapping[str, Any], inputs: Mapping[str, Any]) -> tvm.IRModule:
    """The network with its weights as constants and its inputs of the given shapes; shapes that follow from these are static."""
    free = [str(var.name_hint) for var in main.params if str(var.name_hint) not in params]
    for name in inputs:
        if name not in free:
            raise UserError(f"the network has no input {name!r}", f"its inputs: {', '.join(free) or 'none'}")
    new: dict[relay.Var, relay.Expr] = {}
    for var in main.params:
        name = str(var.name_hint)
        if name in params:
            value = params[name]
            value = value.numpy() if isinstance(value, tvm.nd.NDArray) else np.asarray(value)
            _check_fits(var, "weight", value.shape, str(value.dtype))
            new[var] = as_constant(value)
        elif name in inputs:
            given = inputs[name]
            shape, dtype = (given.shape, str(given.dtype)) if isinstance(given, np.ndarray) else (given, None)
            _check_fits(var, "input", shape, dtype)
            new[var] = relay.var(name, shape=shape, dtype=_tensor(var).dtype)
        else:
            new[var] = relay.var(name, _tensor(var))
    # The type of the result may tell of dynamic shapes.
    function = relay.Function(
        [new[var] for var in main.params if str(var.name_hint) in free], relay.bind(main.body, new)
    )
    if main.attrs is not None:
        function = function.with_attr({key: main.attrs[key] for key in main.attrs.keys()})  # noqa: SIM118 - no dict
    return _checked("typed", lambda: run(TYPED, tvm.IRModule.from_expr(function)))


def _tensor(var: relay.Var) -> relay.TensorType:
    if not isinstance(var.type_annotation, relay.TensorType):
        raise UserError(
            f"the variable {var.name_hint!r} of @main is no tensor",
            f"its type is {var.type_annotation}",
            "relay.var(name, shape=…, dtype=…)",
        )
    return var.type_annotation


def _check_fits(var: relay.Var, what: str, shape: Any, dtype: str | None) -> None:
    """Dynamic extents take any size; without ``dtype`` none is checked."""
    kind = _tensor(var)
    wanted = [int(extent) if isinstance(extent, tvm.tir.IntImm) else None for extent in kind.shape]
    sizes = list(shape) if isinstance(shape, Sequence) else [shape]
    positive = all(isinstance(size, int | np.integer) and size > 0 for size in sizes)
    fits = len(sizes) == len(wanted) and all(w in (None, got) for w, got in zip(wanted, sizes, strict=True))
    if not (positive and fits and dtype in (None, str(kind.dtype))):
        raise UserError(
            f"the {what} {var.name_hint!r} does not fit: {shape} {dtype or ''}".rstrip(),
            f"the module declares [{', '.join('?' if w is None else str(w) for w in wanted)}] {kind.dtype}",
        )


def _checked(done: str, work: Callable[[], T]) -> T:
    """Passes raise assertions, internal errors, diagnostics."""
    try:
        return work()
    except CodlError:
        raise
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        evidence = f"{type(error).__name__}: {lines[-1].strip() if lines else 'no message'}"
        raise UserError(f"the network cannot be {done}", evidence, "print(relay.transform.InferType()(mod))") from error


def _check_static(expr: relay.Expr) -> None:
    for kind in _tensors(expr.checked_type):
        if not all(isinstance(extent, tvm.tir.IntImm) and extent.value > 0 for extent in kind.shape):
            raise UserError(
                f"{_maker(expr)} has a shape that is not known before it runs, or holds nothing",
                f"shape {kind.shape}",
                "from_relay(mod, params, inputs={name: shape}); leave out what selects by values (NonMaxSuppression)",
            )


def _tensors(kind: relay.Type) -> list[relay.TensorType]:
    if isinstance(kind, relay.TupleType):
        return [tensor for field in kind.fields for tensor in _tensors(field)]
    return [kind]


def _maker(expr: relay.Expr) -> str:
    while isinstance(expr, relay.TupleGetItem):
        expr = expr.tuple_value
    if isinstance(expr, relay.Var):
        return f"the input {expr.name_hint!r}"
    return f"the result of {expr.op.name}" if is_call(expr) else f"a {type(expr).__name__}"


def _output_names(main: relay.Function, count: int) -> tuple[str, ...]:
    """Those that the frontend left (TFLite's does); else ``output``, or ``output0``, ``output1``, …"""
    named = main.attrs["output_tensor_names"] if main.attrs and "output_tensor_names" in main.attrs else []
    if len(set(named)) == count:
        return tuple(str(name) for name in named)
    return ("output",) if count == 1 else tuple(f"output{index}" for index in range(count))
