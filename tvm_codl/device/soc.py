"""Soc: the four facts of a GPU that CoDL's cost formulas need, and the files in which CoDL keeps them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from tvm_codl.errors import UserError

_LINE = re.compile(r"([A-Za-z_]\w*)\s*:\s*(.*?)\s*")
_LARGEST = 1 << 40


class Soc(msgspec.Struct, frozen=True):
    """CoDL's names (its ``configs/*.yaml``); 0 is unknown.

    ``global_mem_cache_size`` is in bytes, ``kernel_wave_size`` the work-items that run in step (wavefront, warp).
    """

    global_mem_cache_size: int = 0
    compute_units: int = 0
    max_work_group_size: int = 0
    kernel_wave_size: int = 0

    def to_yaml(self) -> str:
        """One line a known fact."""
        facts = {name: int(getattr(self, name)) for name in self.__struct_fields__}
        return "".join(f"{name}: {value}\n" for name, value in facts.items() if value)

    @classmethod
    def from_yaml(cls, text: str, source: str = "a SoC's facts") -> Soc:
        """Flat ``name: whole number`` lines and comments.  Raises :class:`UserError` with ``source`` and the line for
        anything else: no fact, an unknown one, one twice, a number below 1."""
        found: dict[str, int] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].strip()
            if not words:
                continue
            match = _LINE.fullmatch(words)
            name, value = match.groups() if match else ("", "")
            if name not in cls.__struct_fields__ or name in found or not re.fullmatch(r"[0-9]{1,13}", value):
                expected = f"one line each of {', '.join(cls.__struct_fields__)}: a whole number"
                raise UserError(f"{source}:{number} is no fact of a SoC", repr(line), f"write {expected}")
            found[name] = int(value)
            if not 1 <= found[name] <= _LARGEST:
                raise UserError(
                    f"{source}:{number} is no fact of a SoC", f"{name} is {value}", "leave an unknown one out"
                )
        if not found:
            raise UserError(f"{source} tells nothing of a SoC", "no line in it", f"{cls.__struct_fields__[0]}: 131072")
        return cls(**found)


def read_soc(path: str | Path) -> Soc:
    """The facts in a file.  Raises :class:`UserError` for one that cannot be read or says something else."""
    try:
        return Soc.from_yaml(Path(path).read_text(encoding="utf-8-sig"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read", str(error)) from error
