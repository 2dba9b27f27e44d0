"""The schedule that will run: for each row of a table, how its kernel is cut on one processor.

It asks :mod:`tvm_codl.kernels` what the build asks of a convolution, a depthwise convolution or a dense layer, with
arrays: vectors, register tiles, strips, and which configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.cost.table import Integers, Table
from tvm_codl.kernels.gpu import PHONES, Gpu
from tvm_codl.kernels.reuse import (
    ESTIMATED,
    LOCAL_CONV2D,
    LOCAL_DENSE,
    Family,
    Serves,
    Tunings,
    conv2d_family,
    dense_family,
    dense_lanes,
    depthwise_family,
    nearest,
)
from tvm_codl.kernels.tiles import local_tiles, register_tiles, strips, vectors
from tvm_codl.kernels.tiles.local_tiles import LocalProblem, LocalTiles
from tvm_codl.kernels.variant import Cut, Task, Variant, variant_of

#: Values of ``task``; NONE is a kernel without a register tile.
NONE, CONVOLUTION, STRIPS, PRODUCT = 0, 1, 2, 3
_CUTS: Mapping[int, Task] = {NONE: "plain", CONVOLUTION: "tile", STRIPS: "strips", PRODUCT: "tile"}
_WINDOW = (
    *("kernel_h", "kernel_w", "stride", "stride_w", "pad_left", "pad_right"),
    *("dilation", "dilation_w"),
)


class Schedules(msgspec.Struct, frozen=True):
    """One entry a row in each array; rows without a register tile have ones.

    ``rows_out`` × ``columns_out`` results of ``channels`` values (whole vectors of ``lanes``) are computed in tiles of
    ``columns`` by ``blocks`` vectors, with a reduction of ``depth``.  ``extra``: the channels that are computed and cut off
    again.  ``nanoseconds``: what the model of tiles in local memory expects; 0 without such tiles.  ``packs``: 1 where weights are packed as the kernel runs.  ``padding``: of a depthwise convolution, how zeros get
    around the input (:data:`~tvm_codl.kernels.tiles.strips.PADDINGS`).
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
    nanoseconds: Integers


class Scheduler:
    """Answers for one processor, whose kernels are those that a tuning for ``serves`` serves."""

    def __init__(self, tunings: Tunings, serves: Serves, gpu: Gpu) -> None:
        self.processor, self.lanes = serves.processor, serves.lanes
        self.gpu = gpu if serves.processor == "gpu" else Gpu()
        self.phone, self.local_memory = self.gpu.kind in PHONES, self.gpu.kind == "local"
        self._families = tunings.by_family(serves)

    def schedules(self, table: Table) -> Schedules:
        """Of all rows."""
        result = {name: np.ones(len(table), dtype=np.int64) for name in Schedules.__struct_fields__}
        for name in ("task", "source", "extra", "packs", "padding", "nanoseconds"):
            result[name][:] = 0
        weighted = table["bytes_weights"] > 0
        for rows, schedule in (
            ((table.kinds == "conv2d") & (table["groups"] == 1) & weighted, self._conv2d),
            ((table.kinds == "dense") & weighted, self._dense),
            (table.kinds == "depthwise", self._depthwise),
        ):
            at = np.flatnonzero(rows)
            if len(at):
                for name, value in schedule(table.rows(at)).items():
                    result[name][at] = value
        return Schedules(**result)

    def variants(self, table: Table) -> list[Variant]:
        """In words, of a GPU's kernels, by row."""
        s = self.schedules(table)
        columns = (s.task, s.columns, s.blocks, s.lanes, s.source)
        return [variant_of(self.gpu, Cut(_CUTS[task], *rest)) for task, *rest in _rows(*columns)]

    def _conv2d(self, table: Table) -> dict[str, Any]:
        if self.local_memory:
            families = [(LOCAL_CONV2D, *conv2d_family(*part)[1:]) for part in _local_rows(table)]
            sizes = ("batch", "out_h", "out_w", "out_c", "in_c", "kernel_h", "kernel_w", "stride", "stride_w")
            tiled = self._in_local_memory(_rows(*(table[name] for name in sizes)), families, "out_h", table)
            return {**tiled, "task": CONVOLUTION}
        rows, columns, channels_in = table["out_h"], table["out_w"], table["in_c"]
        depth, positions = table["kernel_h"] * table["kernel_w"] * channels_in, rows * columns
        extra = vectors.missing_conv2d(table["out_c"], positions, depth, self.lanes)
        channels = table["out_c"] + extra
        if self.phone:
            lanes, channels_in = np.full_like(channels, register_tiles.STEP), _whole(channels_in)
            packs = (channels % lanes != 0) | (table["in_c"] != channels_in)
            depth, packed = table["kernel_h"] * table["kernel_w"] * channels_in, np.zeros_like(lanes)
        else:
            lanes, packs = vectors.packing(channels, positions, self.lanes)
            packed = np.where(packs, 0, lanes)
        parts = _rows(table["batch"], table["in_w"], table["in_c"], packed, *_window(table))
        families = [conv2d_family(*part) for part in parts]
        filled = -(-channels // lanes) * lanes
        problem = register_tiles.Problem(rows, columns, filled, depth, channels_in, lanes, self.gpu)
        tiled = self._tiled(problem, families, rows, channels, _exact(table))
        return {**tiled, "task": CONVOLUTION, "extra": extra, "packs": packs}

    def _dense(self, table: Table) -> dict[str, Any]:
        if self.local_memory:
            one = np.ones_like(table["batch"])
            families = [(LOCAL_DENSE, depth) for depth in table["in_c"].tolist()]
            sizes = _rows(one, one, table["batch"], table["out_c"], table["in_c"])
            return {**self._in_local_memory(sizes, families, "batch", table), "task": PRODUCT}
        depth, rows = table["in_c"], table["batch"]
        extra = vectors.missing(table["out_c"], self.lanes)
        channels = table["out_c"] + extra
        if self.phone:
            families = [dense_family(k, dense_lanes(units)) for k, units in _rows(depth, channels)]
            depth, filled = _whole(depth), _whole(channels)
            lanes = np.full_like(channels, register_tiles.STEP)
        else:
            filled, lanes = channels, vectors.lanes_for(channels, self.lanes)
            families = [dense_family(*part) for part in _rows(depth, lanes)]
        # A product's rows are the columns of its tiles.
        problem = register_tiles.Problem(np.ones_like(rows), rows, filled, depth, depth, lanes, self.gpu)
        tiled = self._tiled(problem, families, rows, channels, np.zeros((len(rows), 3), dtype=np.int64))
        return {**tiled, "task": PRODUCT, "extra": extra}

    def _tiled(
        self,
        problem: register_tiles.Problem,
        families: Iterable[Family],
        rows: Integers,
        channels: Integers,
        exact: Integers,
    ) -> dict[str, Any]:
        names = ("columns", "blocks", "unroll", "rows", "weights_first")
        source, knobs = self._configurations(families, rows, channels, exact, names)
        tiles = register_tiles.fit(register_tiles.Tiles(**knobs), problem, source != ESTIMATED)
        return {
            **{name: getattr(tiles, name) for name in names},
            "source": source,
            "lanes": problem.lanes,
            "channels": problem.channels,
            "rows_out": problem.rows,
            "columns_out": problem.columns,
            "depth": problem.depth,
        }

    def _in_local_memory(
        self, sizes: list[list[int]], families: Iterable[Family], along: str, table: Table
    ) -> dict[str, Any]:
        """Of problems of those ``sizes`` (:class:`LocalProblem`'s fields); ``along`` names the extent beside the channels by
        which relatives are told apart."""
        exact = _exact(table) if along == "out_h" else np.zeros((len(sizes), 3), dtype=np.int64)
        source, settings = self._settings(families, np.stack([table[along], table["out_c"]], axis=1), exact)
        found: dict[tuple[LocalProblem, str], tuple[LocalTiles, int]] = {}
        rows = []
        for size, setting in zip(sizes, settings, strict=True):
            problem, word = LocalProblem(*size), str(setting.get("tile", ""))
            if (problem, word) not in found:
                tiles = (
                    local_tiles.fit(LocalTiles.parse(word), problem) if word else local_tiles.choose(problem, self.gpu)
                )
                found[problem, word] = tiles, round(1e3 * local_tiles.estimate_us(problem, tiles, self.gpu))
            tiles, expected = found[problem, word]
            rows.append((tiles.columns, tiles.blocks, tiles.step, tiles.rows, expected))
        columns, blocks, unroll, down, expected = np.array(rows, dtype=np.int64).T
        return {
            "source": source,
            "lanes": np.full(len(rows), local_tiles.LANES),
            "channels": table["out_c"],
            "rows_out": np.array([size[1] for size in sizes]),
            "columns_out": np.array([size[2] for size in sizes]),
            "depth": table["kernel_h"] * table["kernel_w"] * table["in_c"],
            "columns": columns,
            "blocks": blocks,
            "unroll": unroll,
            "rows": down,
            "nanoseconds": expected,
        }

    def _depthwise(self, table: Table) -> dict[str, Any]:
        rows, columns, channels = table["out_h"], table["out_w"], table["out_c"]
        each = channels // np.maximum(table["in_c"], 1)
        lanes = np.where(each == 1, vectors.lanes_for(channels, self.lanes), 1)
        taps = table["kernel_h"] * table["kernel_w"]
        families = [depthwise_family(*part) for part in _rows(table["batch"], table["in_w"], each, *_window(table))]
        names = ("columns", "rows", "padding")
        source, knobs = self._configurations(families, rows, channels, _exact(table), names)
        window = (table[name] for name in ("kernel_h", "kernel_w", "stride_w", "dilation_w"))
        problem = strips.StripProblem(rows, columns, lanes, *window)
        tuned = strips.fit(strips.Strips(**knobs), problem)
        estimate = strips.choose(problem, self.lanes, self.gpu if self.processor == "gpu" else None)
        is_tuned = source != ESTIMATED
        return {
            **{name: np.where(is_tuned, getattr(tuned, name), getattr(estimate, name)) for name in names},
            "task": STRIPS,
            "source": source,
            "lanes": lanes,
            "channels": channels,
            "rows_out": rows,
            "columns_out": columns,
            "depth": taps,
        }

    def _configurations(
        self, families: Iterable[Family], rows: Integers, channels: Integers, exact: Integers, names: Iterable[str]
    ) -> tuple[Integers, Mapping[str, Integers]]:
        """Where each kernel's configuration comes from, and the knobs called ``names`` of those that were tuned."""
        source, settings = self._settings(families, np.stack([rows, channels], axis=1), exact)
        knobs = {
            name: np.array([_number(setting.get(name, 1)) for setting in settings], dtype=np.int64) for name in names
        }
        return source, knobs

    def _settings(
        self, families: Iterable[Family], extents: Integers, exact: Integers
    ) -> tuple[Integers, list[Mapping[str, Any]]]:
        """Where each kernel's configuration comes from, and its knobs; none where it is estimated."""
        source = np.full(len(extents), ESTIMATED)
        settings: list[Mapping[str, Any]] = [{}] * len(extents)
        groups: dict[Family, list[int]] = {}
        for i, family in enumerate(families):
            groups.setdefault(family, []).append(i)
        for family in groups.keys() & self._families.keys():
            at, relatives = np.array(groups[family], dtype=np.intp), self._families[family]
            chosen, source[at] = nearest(relatives, extents[at], exact[at])
            for i, index in zip(groups[family], chosen, strict=True):
                settings[i] = relatives[index].knobs
        return source, settings


def _number(setting: Any) -> int:
    return strips.PADDINGS.index(setting) if isinstance(setting, str) else int(setting)


def _whole(channels: Integers) -> Integers:
    """Channels in whole vectors of a phone's GPU."""
    return -(-channels // register_tiles.STEP) * register_tiles.STEP


def _rows(*columns: Integers) -> list[list[int]]:
    rows: list[list[int]] = np.stack(columns, axis=1).tolist()
    return rows


def _local_rows(table: Table) -> list[list[int]]:
    return _rows(table["batch"], table["in_w"], table["in_c"], np.zeros_like(table["batch"]), *_window(table))


def _window(table: Table) -> list[Integers]:
    return [table[name] for name in _WINDOW]


def _exact(table: Table) -> NDArray[np.int64]:
    return np.stack([table["in_h"], table["pad_top"], table["pad_bottom"]], axis=1)
