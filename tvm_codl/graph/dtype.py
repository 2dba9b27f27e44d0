"""How many bytes values take."""

from __future__ import annotations

import math

from tvm_codl.graph.opgraph import Shape

_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "float16": 2, "int16": 2, "int64": 8, "float64": 8}


def width(dtype: str) -> int:
    """Bytes of one value."""
    return _BYTES.get(dtype, 4)


def bytes_of(shape: Shape, dtype: str) -> int:
    """Bytes of a tensor."""
    return math.prod(shape) * width(dtype)
