"""Attributes of Relay calls as plain JSON values, and back."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay
from tvm.ir import Array, Op
from tvm.runtime import container

_OPAQUE = "tvm_json"  # the key under which attributes that have no plain form are kept, as TVM's own JSON


def to_plain(call: relay.Call) -> dict[str, Any]:
    """The attributes of a call; TVM's own JSON of them where the plain form loses something."""
    if call.attrs is None:
        return {}
    try:
        plain = _as_plain(call.attrs)
        made = from_plain(call.op.name, plain)
        # Extents and indices of 64 bits become such of 32, in which Relay's types are equal.
        if tvm.ir.structural_equal(made, call.attrs) or _as_plain(made) == plain:
            return plain
    except (AttributeError, TypeError, ValueError, tvm.TVMError):
        pass
    return {_OPAQUE: tvm.ir.save_json(call.attrs)}


def from_plain(op: str, plain: dict[str, Any]) -> tvm.ir.Attrs | None:
    """The attributes object of operator ``op``; None for operators that take none."""
    if _OPAQUE in plain:
        return tvm.ir.load_json(plain[_OPAQUE])
    kind = Op.get(op).attrs_type_key
    if not kind or not plain:
        return None
    return tvm.ir.make_node(kind, **plain)


def _as_plain(attrs: Any) -> dict[str, Any]:
    return {str(key): _plain(attrs[key]) for key in attrs.keys()}  # noqa: SIM118 (no iteration)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (str, container.String)):
        return str(value)
    if isinstance(value, (tvm.tir.IntImm, tvm.tir.FloatImm)):
        return bool(value.value) if value.dtype == "bool" else value.value
    if isinstance(value, (Array, list, tuple)):
        return [_plain(item) for item in value]
    raise TypeError(f"no plain form for {type(value).__name__}")
