"""Canonical JSON: equal values have equal texts and equal digests."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NoReturn


def canonical(text: str) -> str:
    """``text`` with sorted keys and no spaces, ASCII.  Raises :class:`ValueError` for other text."""
    return dump(parse(text))


def parse(text: str) -> Any:
    """The value of JSON ``text``.  Raises :class:`ValueError` for other text; NaN and Infinity are not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def dump(value: Any) -> str:
    """Canonical text of a JSON value.  Raises :class:`ValueError` for an infinite number."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(text: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the canonical text."""
    return hashlib.sha256(canonical(text).encode()).hexdigest()[:16]


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
