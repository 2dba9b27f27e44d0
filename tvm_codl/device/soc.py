"""The four GPU facts that CoDL's cost formulas need, and CoDL's files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from tvm_codl.device.facts_file import read_facts
from tvm_codl.errors import UserError

_NEXT = "write lines such as  compute_units: 8;  leave out what is unknown"
_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]


class Soc(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Named as in CoDL's ``configs/*.yaml``; 0: unknown.

    ``global_mem_cache_size`` is in bytes; ``kernel_wave_size`` is the number of work-items that run in step (wavefront, warp).
    """

    global_mem_cache_size: _Count = 0
    compute_units: _Count = 0
    max_work_group_size: _Count = 0
    kernel_wave_size: _Count = 0

    def to_yaml(self) -> str:
        """One line for each known fact."""
        return msgspec.yaml.encode(self).decode() if self != Soc() else ""


def read_soc(path: str | Path) -> Soc:
    """The facts in a file.  Raises :class:`UserError` for a file that cannot be read, is not valid or states no fact."""
    soc = read_facts(path, Soc, _NEXT)
    if soc == Soc():
        raise UserError(f"{path} states no fact of a GPU", "it is empty", _NEXT)
    return soc
