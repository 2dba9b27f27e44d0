"""Power: what a phone draws in each state of its two processors, and the files in which a person writes that down."""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec

from tvm_codl.errors import UserError

_LINE = re.compile(r"([A-Za-z_]\w*)\s*:\s*(.*?)\s*")
_NEXT = "write four lines, idle_w, cpu_w, gpu_w and both_w, each with the watts that the whole phone draws then"


class Power(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Watts of the whole phone: with both processors idle, with only the CPU or only the GPU busy, with both busy.

    There are no defaults: no phone is like another.  Raises :class:`ValueError` for what is no power, and where a busy
    processor is said to draw less than an idle one.
    """

    idle_w: float
    cpu_w: float
    gpu_w: float
    both_w: float

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite watts >= 0, not {value}")
        for less, more in (("idle_w", "cpu_w"), ("idle_w", "gpu_w"), ("cpu_w", "both_w"), ("gpu_w", "both_w")):
            if getattr(self, less) > getattr(self, more):
                raise ValueError(f"{less} ({getattr(self, less)}) must not be above {more} ({getattr(self, more)})")


def read_power(path: str | Path) -> Power:
    """The table in a file: JSON, or flat YAML with one ``name: watts`` a line.

    Raises :class:`UserError` with the file and the evidence for one that cannot be read or says something else.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the power table {path} cannot be read", str(error), _NEXT) from error
    try:
        if text.lstrip().startswith("{"):
            return msgspec.json.decode(text, type=Power)
        return msgspec.convert(_lines(text), Power)
    except (msgspec.DecodeError, ValueError) as error:
        raise UserError(f"{path} is no power table", str(error), _NEXT) from error


def _lines(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        match = _LINE.fullmatch(words)
        if match is None or match[1] in found:
            raise ValueError(f"line {number}: {line!r} is {'given twice' if match else 'not name: watts'}")
        try:
            found[match[1]] = float(match[2])
        except ValueError as error:
            raise ValueError(f"line {number}: {match[2]!r} is no number") from error
    return found
