"""The schedule that will run: for each row of a table, how its kernel is cut on one processor.

What the build does with a convolution, a depthwise convolution or a dense layer (``schedule/``: layout, strategy,
conv2d, depthwise, dense) as arrays: vectors, register tiles, strips, tails, and whether the configuration was measured,
taken over from a relative, or estimated.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.cost.table import Integers, Table
from tvm_codl.kernels.tiles import many
from tvm_codl.kernels.tiles.strips import rows_per_item, strip
from tvm_codl.kernels.tiles.tiles import VECTOR_REGISTERS
from tvm_codl.kernels.tuned_records import (
    CONV2D,
    DEPTHWISE,
    Family,
    Tuning,
    Tunings,
    dense_family,
    nearest,
)
from tvm_codl.records.record import Processor

#: Values of ``source``.
ESTIMATED, TRANSFERRED, MEASURED = 0, 1, 2
#: Values of ``task``; NONE is a kernel without a register tile.
NONE, CONVOLUTION, STRIPS, PRODUCT = 0, 1, 2, 3
_PADDING = {"inline": 0, "item": 1, "root": 2}
_MANY = 1 << 20


class Schedules(msgspec.Struct, frozen=True):
    """One entry a row in each array; rows without a register tile have ones.

    ``rows_out`` × ``columns_out`` results of ``channels`` values (whole vectors of ``lanes``) are computed in tiles of
    ``columns`` by ``blocks`` vectors, with a reduction of ``depth``.  ``extra``: the channels that are computed and cut off
    again.  ``packs``: 1 where weights are packed as the kernel runs.  ``padding``: of a depthwise convolution, how zeros get
    around the input.
    """

    task: Integers
    source: Integers
    lanes: Integers
    channels: Integers
    extra: Integers
    packs: Integers
    rows_out: Integers
    columns_out: Integers
    depth: Integers
    columns: Integers
    blocks: Integers
    unroll: Integers
    rows: Integers
    weights_first: Integers
    padding: Integers


class Scheduler:
    """Answers for one processor; ``lanes`` is the width of its vectors."""

    def __init__(self, tunings: Tunings, processor: Processor, lanes: int, threads: int = 1) -> None:
        self.processor, self.lanes, self.threads = processor, lanes, threads
        self.registers = VECTOR_REGISTERS if threads == 1 else VECTOR_REGISTERS // 2
        self._families = tunings.by_family(processor, lanes)

    def schedules(self, table: Table) -> Schedules:
        """Of all rows."""
        n = len(table)
        found = {name: np.ones(n, dtype=np.int64) for name in Schedules.__struct_fields__}
        for name in ("task", "source", "extra", "packs", "padding"):
            found[name] = np.zeros(n, dtype=np.int64)
        weighted = table["bytes_weights"] > 0
        conv = (table.kinds == "conv2d") & (table["groups"] == 1) & weighted
        for rows, fill in (
            (np.flatnonzero(conv), self._conv2d),
            (np.flatnonzero((table.kinds == "dense") & weighted), self._dense),
            (np.flatnonzero(table.kinds == "depthwise"), self._depthwise),
        ):
            if len(rows):
                fill(table, rows, found)
        return Schedules(**found)

    def _conv2d(self, table: Table, at: NDArray[np.intp], found: dict[str, Integers]) -> None:
        def column(name: str) -> Integers:
            return table[name][at]

        rows, columns, asked = column("out_h"), column("out_w"), column("out_c")
        depth = column("kernel_h") * column("kernel_w") * column("in_c")
        positions = rows * columns
        ragged = (asked % 4 != 0) & (asked >= 16) & (self.lanes > 1)
        extra = np.where(ragged, -asked % self.lanes, 0)
        lanes, fill = many.packings(asked, positions, self.lanes)
        extra = np.where((extra == 0) & fill & (positions < depth), -asked % lanes, extra)
        channels = asked + extra
        lanes, fill = many.packings(channels, positions, self.lanes)
        found["extra"][at], found["packs"][at] = extra, fill
        window = [column(n) for n in ("kernel_h", "kernel_w", "stride", "stride_w", "pad_left", "pad_right")]
        window += [column("dilation"), column("dilation_w")]
        packed = np.where(fill, 0, lanes)
        statics = np.stack([column("batch"), column("in_w"), column("in_c"), packed, *window], axis=1)
        exact = np.stack([column("in_h"), column("pad_top"), column("pad_bottom")], axis=1)
        chosen = self._chosen([(CONV2D, *row) for row in map(tuple, statics.tolist())], rows, channels, exact)
        self._tile(at, found, chosen, rows, columns, -(-channels // lanes), lanes, depth, column("in_c"))

    def _dense(self, table: Table, at: NDArray[np.intp], found: dict[str, Integers]) -> None:
        asked, depth = table["out_c"][at], table["in_c"][at]
        rows = table["batch"][at]
        ragged = (asked % 4 != 0) & (asked >= 16) & (self.lanes > 1)
        extra = np.where(ragged, -asked % self.lanes, 0)
        channels = asked + extra
        lanes = many.lanes_for(channels, self.lanes)
        found["extra"][at] = extra
        families = [dense_family(d, w) for d, w in zip(depth.tolist(), lanes.tolist(), strict=True)]
        chosen = self._chosen(families, rows, channels, np.zeros((len(at), 3), dtype=np.int64))
        # A product's rows are the columns of its tiles.
        one = np.ones_like(rows)
        self._tile(at, found, chosen, one, rows, channels // lanes, lanes, depth, depth)
        found["task"][at] = PRODUCT

    def _tile(
        self,
        at: NDArray[np.intp],
        found: dict[str, Integers],
        chosen: tuple[Integers, list[Tuning]],
        rows: Integers,
        columns: Integers,
        blocks: Integers,
        lanes: Integers,
        depth: Integers,
        channels_in: Integers,
    ) -> None:
        """Register tiles: those of the chosen records made legal, or estimated ones (``tiles.fit``, ``tiles.choose``)."""
        index, source, used = chosen[0][:, 0], chosen[0][:, 1], chosen[1]
        known = source != ESTIMATED
        knobs = {
            name: np.array([int(t.knobs.get(name, default)) for t in used] or [0], dtype=np.int64)[index]
            for name, default in (("columns", 1), ("blocks", 1), ("unroll", 1), ("rows", 1), ("weights_first", 1))
        }
        fits = known & (blocks % np.maximum(knobs["blocks"], 1) == 0) & (knobs["columns"] <= columns)
        best = np.ones((len(at), 2), dtype=np.int64)
        for i in np.flatnonzero(~fits).tolist():
            best[i] = many.best_tile(int(columns[i]), int(blocks[i]), int(depth[i]), int(lanes[i]), self.registers)
        tile_columns = np.where(fits, knobs["columns"], best[:, 0])
        tile_blocks = np.where(fits, knobs["blocks"], best[:, 1])
        default = (
            many.default_rows(rows, columns, tile_blocks, depth, lanes) if self.threads == 1 else np.ones_like(rows)
        )
        weights = 4 * depth * blocks * lanes
        by_blocks = 4 * channels_in * rows * columns * (blocks // tile_blocks)
        by_rows = weights * rows * np.where(weights <= 384 * 1024, 0.25, 1.0)
        values = {
            "task": np.full(len(at), CONVOLUTION),
            "source": source,
            "lanes": lanes,
            "channels": blocks * lanes,
            "rows_out": rows,
            "columns_out": columns,
            "depth": depth,
            "columns": tile_columns,
            "blocks": tile_blocks,
            "unroll": np.where(known, many.largest_divisors(channels_in, np.where(known, knobs["unroll"], 1)), 1),
            "rows": np.where(known, many.largest_divisors(rows, np.where(known, knobs["rows"], 1)), default),
            "weights_first": np.where(known, knobs["weights_first"], by_blocks <= by_rows),
        }
        for name, value in values.items():
            found[name][at] = value

    def _depthwise(self, table: Table, at: NDArray[np.intp], found: dict[str, Integers]) -> None:
        def column(name: str) -> Integers:
            return table[name][at]

        rows, columns, channels = column("out_h"), column("out_w"), column("out_c")
        each = channels // np.maximum(column("in_c"), 1)
        lanes = np.where(each == 1, many.lanes_for(channels, self.lanes), 1)
        window = [column(n) for n in ("kernel_h", "kernel_w", "stride", "stride_w", "pad_left", "pad_right")]
        window += [column("dilation"), column("dilation_w")]
        statics = np.stack([column("batch"), column("in_w"), each, *window], axis=1)
        exact = np.stack([column("in_h"), column("pad_top"), column("pad_bottom")], axis=1)
        families: list[Family] = [(DEPTHWISE, *row) for row in map(tuple, statics.tolist())]
        chosen, used = self._chosen(families, rows, channels, exact)
        index, source = chosen[:, 0], chosen[:, 1]
        taps = column("kernel_h") * column("kernel_w")
        work = columns * taps * lanes
        places = range(len(at))
        knobs = [used[i].knobs if s else {} for i, s in zip(index.tolist(), source.tolist(), strict=True)]
        known = source != ESTIMATED
        strips = [
            min(int(columns[i]), int(knobs[i].get("columns", 1))) if knobs[i] else strip(int(columns[i]))
            for i in places
        ]
        wanted = np.array([int(k.get("rows", 1)) for k in knobs], dtype=np.int64)
        own = [1 if knobs[i] else rows_per_item(int(rows[i]), int(work[i])) for i in places]
        usual = "item" if self.processor == "gpu" and self.lanes > 4 else "inline"
        values = {
            "task": np.full(len(at), STRIPS),
            "source": source,
            "lanes": lanes,
            "channels": channels,
            "rows_out": rows,
            "columns_out": columns,
            "depth": taps,
            "columns": np.array(strips, dtype=np.int64),
            "rows": np.where(known, many.largest_divisors(rows, wanted), own),
            "padding": np.array([_PADDING[str(k.get("padding", usual))] for k in knobs], dtype=np.int64),
        }
        for name, value in values.items():
            found[name][at] = value

    def _chosen(
        self, families: Sequence[Family], rows: Integers, channels: Integers, exact: Integers
    ) -> tuple[Integers, list[Tuning]]:
        """(rows, 2): index into the list that comes with it, and the source; the index is 0 where there is none."""
        result = np.zeros((len(families), 2), dtype=np.int64)
        used: list[Tuning] = []
        groups: dict[Family, list[int]] = {}
        for i, family in enumerate(families):
            groups.setdefault(family, []).append(i)
        for family, members in groups.items():
            relatives = self._families.get(family)
            if relatives is None:
                continue
            at = np.array(members, dtype=np.intp)
            best = nearest(relatives, rows[at].astype(np.float64), channels[at].astype(np.float64))
            result[at, 0] = best + len(used)
            result[at, 1] = TRANSFERRED
            for place, relative in enumerate(relatives):
                same = (rows[at] == relative.extents[0]) & (channels[at] == relative.extents[1])
                same &= (exact[at] == np.array(relative.exact)).all(axis=1)
                result[at[same]] = (place + len(used), MEASURED)
            used += relatives
        return result, used
