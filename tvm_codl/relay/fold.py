"""Constant folding by numpy.

Relay's ``FoldConstant`` compiles a kernel for every call: 20 s for the 200 weights of a small network.  Simplifying a
network leaves only a dozen simple operators to fold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relay

from tvm_codl.relay.calls import Site, as_constant, call_pass, value_of

#: From a call's attributes and arguments to its value, or its values; None leaves the call to Relay.
Evaluate = Callable[[Any, list[np.ndarray]], "np.ndarray | list[np.ndarray] | None"]


def _transpose(attrs: Any, values: list[np.ndarray]) -> np.ndarray:
    return np.transpose(values[0], [int(a) for a in attrs.axes] if attrs.axes is not None else None)


def _layout_transform(attrs: Any, values: list[np.ndarray]) -> np.ndarray | None:
    """Only layouts that name each axis by one letter, not blocked ones (``NCHW4c``)."""
    source, target = str(attrs.src_layout), str(attrs.dst_layout)
    if sorted(source) != sorted(target) or not source.isalpha():
        return None
    return np.transpose(values[0], [source.index(letter) for letter in target])


def _split(attrs: Any, values: list[np.ndarray]) -> list[np.ndarray]:
    parts = attrs.indices_or_sections
    cuts = int(parts) if isinstance(parts, int | tvm.tir.IntImm) else [int(at) for at in parts]
    return np.split(values[0], cuts, int(attrs.axis))


def _strided_slice(attrs: Any, values: list[np.ndarray]) -> np.ndarray | None:
    """Only forwards, and with the ends named."""
    axes = range(len(attrs.begin)) if attrs.axes is None else [int(axis) for axis in attrs.axes]
    steps = [int(step) for step in attrs.strides or (1,)]
    steps = steps * len(axes) if len(steps) == 1 else steps
    if attrs.slice_mode != "end" or min(steps) < 1:
        return None
    index = [slice(None)] * values[0].ndim
    for axis, begin, end, step in zip(axes, attrs.begin, attrs.end, steps, strict=True):
        index[axis] = slice(int(begin), int(end), step)
    return values[0][tuple(index)]


TABLE: dict[str, Evaluate] = {
    "cast": lambda attrs, v: v[0].astype(str(attrs.dtype)),
    "add": lambda _, v: v[0] + v[1],
    "subtract": lambda _, v: v[0] - v[1],
    "multiply": lambda _, v: v[0] * v[1],
    "divide": lambda _, v: v[0] / v[1] if np.issubdtype(v[0].dtype, np.floating) else None,
    "negative": lambda _, v: -v[0],
    "sqrt": lambda _, v: np.sqrt(v[0]),
    "rsqrt": lambda _, v: np.asarray(1.0 / np.sqrt(v[0]), v[0].dtype),
    "transpose": _transpose,
    "layout_transform": _layout_transform,
    "split": _split,
    "strided_slice": _strided_slice,
}


def fold(site: Site) -> relay.Expr | None:
    """The value of a call on constants; None where it has others, or is not known here."""
    if site.op in ("reshape", "expand_dims", "squeeze", "nn.batch_flatten"):
        value = value_of(site.args[0])
        return None if value is None else as_constant(value.reshape(site.shape))
    if site.op in ("zeros", "ones"):
        return as_constant(np.full(site.shape, site.op == "ones", str(site.call.checked_type.dtype)))
    if site.op not in TABLE:
        return None
    values = [value for arg in site.args if (value := value_of(arg)) is not None]
    if len(values) < len(site.args):
        return None
    result = TABLE[site.op](site.call.attrs, values)
    if result is None:
        return None
    if isinstance(result, list):
        return relay.Tuple([as_constant(np.ascontiguousarray(part)) for part in result])
    return as_constant(np.ascontiguousarray(result, dtype=site.call.checked_type.dtype).reshape(site.shape))


FoldConstants = call_pass("FoldConstants", fold)
