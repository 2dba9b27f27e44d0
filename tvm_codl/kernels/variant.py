"""Which variant of a kernel an operator gets on a GPU, and why, in words.  Imports no TVM.

What is said here is decided in :mod:`.gpu` and :mod:`.tiles`; a variant that is added there gets its words here.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.reuse import ESTIMATED, MEASURED
from tvm_codl.kernels.tiles.local_tiles import LocalTiles

Task = Literal["tile", "strips", "local", "plain"]


class Cut(msgspec.Struct, frozen=True):
    """How a kernel is cut: ``tile`` is a register tile of ``columns`` by ``blocks`` vectors of ``lanes``, ``strips`` one of
    ``columns`` by a vector, ``local`` one in local memory that ``tile`` writes out (:class:`.LocalTiles`), of ``positions``
    results to a channel, ``plain`` none of these.  ``filtered``: the size of Winograd's tiles, 0 without.  ``source`` is where its configuration comes from
    (:data:`~tvm_codl.kernels.reuse.ESTIMATED` and the others)."""

    task: Task = "plain"
    columns: int = 1
    blocks: int = 1
    lanes: int = 1
    source: int = ESTIMATED
    tile: LocalTiles | None = None
    positions: int = 1
    filtered: int = 0


class Variant(msgspec.Struct, frozen=True):
    """``name`` is for tables, ``words`` say how the kernel is cut, why, and who says so."""

    name: str
    words: str


#: Why a GPU's kernels read their inputs straight from memory.
_DIRECT = {
    "bifrost": "Mali keeps local memory in main memory",
    "valhall": "Mali keeps local memory in main memory",
    "adreno": "its registers hold the tile",
    "mobile": "nothing is known of its local memory",
    "local": "its caches serve neighbouring work-items",
}


def variant_of(gpu: Gpu, cut: Cut) -> Variant:
    """The variant of a kernel that is cut so on ``gpu``."""
    if gpu.kind == "played":
        return Variant("one work-item", _said("one work-item a group", cut, "a CPU plays the GPU"))
    if cut.tile is not None:
        return Variant("local memory", _in_local_memory(gpu, cut, cut.tile))
    if cut.task == "plain":
        return Variant("plain", f"groups of {gpu.group}: nothing is shared within a group")
    return Variant("direct", _said("direct", cut, _DIRECT[gpu.kind], f"groups of {gpu.group}"))


def _in_local_memory(gpu: Gpu, cut: Cut, tiles: LocalTiles) -> str:
    rows, columns, channels = tiles.tile
    how = (
        f"local memory, {rows} x {columns} positions by {channels} channels, groups of {tiles.threads}, {_source(cut)}"
    )
    if tiles.parts == 1:
        return f"{how}: work-items of a group read the same inputs and weights"
    few = f"{cut.positions} position{'s are' if cut.positions > 1 else ' is'} too few for {gpu.units} compute units"
    return f"{how}, {tiles.parts} parts: {few}"


def _said(name: str, cut: Cut, why: str, groups: str = "") -> str:
    tile = {
        "tile": f"{cut.columns} x {cut.blocks} tile of {cut.lanes}-wide vectors",
        "strips": f"strips of {cut.columns} columns",
        "local": "",
        "plain": "",
    }[cut.task]
    winograd = f"Winograd's tiles of {cut.filtered} x {cut.filtered}" if cut.filtered else ""
    return ", ".join(filter(None, (name, winograd, tile, groups, _source(cut)))) + f": {why}"


def _source(cut: Cut) -> str:
    if cut.task == "plain":
        return ""
    if cut.source == ESTIMATED:
        return "estimated"
    return "tuned" if cut.source == MEASURED else "as tuned for a relative"
