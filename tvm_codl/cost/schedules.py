"""The schedule that will run: for each row of a table, how its kernel is cut on one processor.

It asks :mod:`tvm_codl.kernels` what the build asks of a convolution, a depthwise convolution or a dense layer, with
arrays: vectors, register tiles, strips, and which configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.table import Integers, Table
from tvm_codl.kernels.gpu import PHONES, Gpu
from tvm_codl.kernels.reuse import (
    ESTIMATED,
    LOCAL_CONV2D,
    LOCAL_DENSE,
    Family,
    Tunings,
    conv2d_family,
    dense_family,
    dense_lanes,
    depthwise_family,
    integer_conv2d_family,
    nearest,
    of_integers,
)
from tvm_codl.kernels.tiles import local_tiles, one_row, register_tiles, strips, vectors, winograd
from tvm_codl.kernels.tiles.local_tiles import LocalProblem, LocalTiles
from tvm_codl.kernels.variant import Cut, Task, Variant, variant_of
from tvm_codl.records.record import Processor

#: Values of ``task``; NONE is a kernel without a register tile.
NONE, CONVOLUTION, STRIPS, PRODUCT = 0, 1, 2, 3
_CUTS: Mapping[int, Task] = {NONE: "plain", CONVOLUTION: "tile", STRIPS: "strips", PRODUCT: "tile"}
_WINDOW = (
    *("kernel_h", "kernel_w", "stride", "stride_w", "pad_left", "pad_right"),
    *("dilation", "dilation_w"),
)

#: What Winograd's filtering is for.
_FILTERED = {
    "kernel_h": winograd.WINDOW,
    "kernel_w": winograd.WINDOW,
    "stride": 1,
    "stride_w": 1,
    "dilation": 1,
    "dilation_w": 1,
}

#: What may be computed as one row.
_PLAIN = {
    **dict.fromkeys((*_FILTERED, "groups"), 1),
    **dict.fromkeys(("pad_left", "pad_right", "pad_top", "pad_bottom"), 0),
}

#: :class:`LocalProblem`'s fields.
_SIZES = ("batch", "out_h", "out_w", "out_c", "in_c", "kernel_h", "kernel_w", "stride", "stride_w")


class Schedules(msgspec.Struct, frozen=True):
    """One entry a row in each array; rows without a register tile have ones.

    ``rows_out`` × ``columns_out`` results of ``channels`` values (whole vectors of ``lanes``) are computed in tiles of
    ``columns`` by ``blocks`` vectors, with a reduction of ``depth``.  ``extra``: the channels that are computed and cut off
    again.  ``filtered``: the size of Winograd's tiles, 0 without them; then the rows are the points of a tile, the columns its
    tiles, and the depth is the input channels.  ``nanoseconds``: what the model of tiles in local memory expects; 0 without such tiles.
    ``packs``: 1 where weights are packed as the kernel runs.  ``padding``: of a depthwise convolution, how zeros get around the
    input (:data:`~tvm_codl.kernels.tiles.strips.PADDINGS`).
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
    filtered: Integers
    nanoseconds: Integers


class Scheduler:
    """Answers for one processor of a device, whose kernels are tuned as ``tunings`` say."""

    def __init__(self, tunings: Tunings, processor: Processor, device: DeviceFacts) -> None:
        serves = device.serves(processor)
        self.processor, self.lanes, self.dot = processor, serves.lanes, device.dot(processor)
        self.vectors = register_tiles.vector_registers(serves.lanes)
        self.gpu = device.gpu if processor == "gpu" else Gpu()
        self.phone, self.local_memory = self.gpu.kind in PHONES, self.gpu.kind == "local"
        self._families = tunings.by_family(serves)

    def schedules(self, table: Table) -> Schedules:
        """Of all rows."""
        result = {name: np.ones(len(table), dtype=np.int64) for name in Schedules.__struct_fields__}
        for name in ("task", "source", "extra", "packs", "padding", "filtered", "nanoseconds"):
            result[name][:] = 0
        weighted = table["bytes_weights"] > 0
        convolutions = (table["groups"] == 1) & weighted
        plain = self.phone or self.local_memory  # what dense layers of integers are on real GPUs
        for rows, schedule in (
            ((table.kinds == "conv2d") & convolutions, self._conv2d),
            ((table.kinds == "integer_conv2d") & convolutions, self._integer_conv2d),
            ((table.kinds == "dense") & weighted, self._dense),
            ((table.kinds == "integer_dense") & weighted & (not plain), self._dense),
            ((table.kinds == "depthwise") | (table.kinds == "integer_depthwise"), self._depthwise),
        ):
            at = np.flatnonzero(rows)
            if len(at):
                for name, value in schedule(table.rows(at)).items():
                    result[name][at] = value
        return Schedules(**result)

    def variants(self, table: Table) -> list[Variant]:
        """In words, of a GPU's kernels, by row."""
        s = self.schedules(table)
        columns = _rows(s.task, s.columns, s.blocks, s.lanes, s.source, s.filtered)
        cuts = [
            Cut(_CUTS[task], across, blocks, lanes, source, filtered=filtered)
            for task, across, blocks, lanes, source, filtered in columns
        ]
        for i in np.flatnonzero(s.nanoseconds):
            product = bool(s.task[i] == PRODUCT)
            _, ((problem, tiles),) = self._local_tiles(table.rows(np.array([i])), product)
            positions = problem.batch * problem.rows * problem.columns
            cuts[i] = Cut("local", source=int(s.source[i]), tile=tiles, positions=positions)
        return [variant_of(self.gpu, cut) for cut in cuts]

    def _conv2d(self, table: Table) -> dict[str, Any]:
        if self.local_memory:
            return {**self._in_local_memory(table, product=False), "task": CONVOLUTION}
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
        filled = -(-channels // lanes) * lanes
        shared = register_tiles.shared_taps(self.gpu, table["kernel_w"], table["stride_w"], table["dilation_w"])
        problem = register_tiles.Problem(
            rows, columns, filled, depth, channels_in, lanes, self.gpu, shared, self.vectors
        )
        flat = self._in_one_row(table, problem, packs | (extra > 0))
        rows, columns = np.where(flat, 1, rows), np.where(flat, positions, columns)
        problem = msgspec.structs.replace(problem, rows=rows, columns=columns)
        width = np.where(flat, positions, table["in_w"])
        parts = _rows(table["batch"], width, table["in_c"], packed, *_window(table))
        families = [conv2d_family(*part) for part in parts]
        filtered = self._filtered(table, channels, lanes, packs)
        at = filtered > 0
        if at.any():
            points = winograd.products(_convolutions(table, channels, lanes), np.maximum(filtered, 1), problem)
            replaced = ("rows", "columns", "depth", "channels_in", "channels", "lanes")
            both = {name: np.where(at, getattr(points, name), getattr(problem, name)) for name in replaced}
            problem = msgspec.structs.replace(problem, **both)
            families = [family if direct else () for family, direct in zip(families, (~at).tolist(), strict=True)]
        exact = _exact(table)
        exact[:, 0] = np.where(flat, 1, exact[:, 0])
        tiled = self._tiled(problem, families, rows, channels, exact)
        tiled["rows"] = np.where(at, filtered, tiled["rows"])
        return {**tiled, "task": CONVOLUTION, "extra": extra, "packs": packs, "filtered": filtered}

    def _in_one_row(self, table: Table, problem: register_tiles.Problem, no: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """As :mod:`tvm_codl.kernels.schedules.layout` decides."""
        legal = ~np.asarray(no, dtype=np.bool_) & (not self.phone)
        for name, value in _PLAIN.items():
            legal &= table[name] == value
        if legal.any():
            legal &= one_row.in_one_row(problem)
        return legal

    def _filtered(self, table: Table, channels: Integers, lanes: Integers, packs: NDArray[np.bool_]) -> Integers:
        """As :func:`.schedules.winograd.packed` decides."""
        legal = (table["batch"] == 1) & ~np.asarray(packs, dtype=np.bool_) & (not self.phone)
        for name, value in _FILTERED.items():
            legal &= table[name] == value
        size = winograd.size_of(_convolutions(table, channels, lanes), self.processor == "gpu")
        return np.where(legal, size, 0)

    def _integer_conv2d(self, table: Table) -> dict[str, Any]:
        rows, columns, channels_in, step = table["out_h"], table["out_w"], table["in_c"], self.dot.step
        positions, window = rows * columns, table["kernel_h"] * table["kernel_w"]
        widest = 1 if self.local_memory else self.lanes
        extra = vectors.missing_conv2d(table["out_c"], positions, window * channels_in, widest)
        channels = table["out_c"] + extra
        lanes, fill = vectors.integer_packing(channels, positions, self.lanes)
        packs = fill | (channels_in % step != 0)
        parts = _rows(table["batch"], table["in_w"], channels_in, np.where(packs, 0, lanes), *_window(table))
        steps = np.where(packs, 0, step).tolist()
        families = [integer_conv2d_family(step, *part) for step, part in zip(steps, parts, strict=True)]
        # Of an undilated window, the values of a row lie together.
        together = table["dilation_w"] == 1
        deep = -(-channels_in * np.where(together, table["kernel_w"], 1) // step)
        depth = deep * table["kernel_h"] * np.where(together, 1, table["kernel_w"])
        filled, held = -(-channels // lanes) * lanes, self.dot.vectors
        problem = register_tiles.Problem(rows, columns, filled, depth, deep, lanes, self.gpu, vectors=held)
        tiled = self._tiled(problem, families, rows, channels, _exact(table))
        return {**tiled, "task": CONVOLUTION, "extra": extra, "packs": packs}

    def _dense(self, table: Table) -> dict[str, Any]:
        if self.local_memory:
            return {**self._in_local_memory(table, product=True), "task": PRODUCT}
        depth, rows = table["in_c"], table["batch"]
        integers = table.kinds == "integer_dense"
        extra = np.where(integers, 0, vectors.missing(table["out_c"], self.lanes))
        channels = table["out_c"] + extra
        if self.phone:
            families = [dense_family(k, dense_lanes(units)) for k, units in _rows(depth, channels)]
            depth, filled = _whole(depth), _whole(channels)
            lanes = np.full_like(channels, register_tiles.STEP)
        else:
            filled, lanes = channels, vectors.lanes_for(channels, self.lanes)
            families = _families(dense_family, _rows(depth, lanes), integers)
        # A product's rows are the columns of its tiles.
        sizes = (np.ones_like(rows), rows, filled, depth, depth, lanes)
        problem = register_tiles.Problem(*sizes, self.gpu, vectors=self.vectors)
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

    def _local_tiles(self, table: Table, product: bool) -> tuple[Integers, list[tuple[LocalProblem, LocalTiles]]]:
        """Where the tiles come from, the problems of all rows and their tiles in local memory."""
        one, zero = np.ones_like(table["batch"]), np.zeros_like(table["batch"])
        if product:
            families: list[Family] = [(LOCAL_DENSE, depth) for depth in table["in_c"].tolist()]
            sizes = _rows(one, one, table["batch"], table["out_c"], table["in_c"])
            extents, exact = np.stack([table["batch"], table["out_c"]], axis=1), np.stack([zero] * 3, axis=1)
        else:
            parts = _rows(table["batch"], table["in_w"], table["in_c"], zero, *_window(table))
            families = [(LOCAL_CONV2D, *conv2d_family(*part)[1:]) for part in parts]
            sizes = _rows(*(table[name] for name in _SIZES))
            extents, exact = np.stack([table["out_h"], table["out_c"]], axis=1), _exact(table)
        source, settings = self._settings(families, extents, exact)
        found: dict[tuple[LocalProblem, str], LocalTiles] = {}
        keys = [
            (LocalProblem(*size), str(setting.get("tile", ""))) for size, setting in zip(sizes, settings, strict=True)
        ]
        for problem, word in dict.fromkeys(keys):
            tuned = local_tiles.fit(LocalTiles.parse(word), problem) if word else None
            found[problem, word] = tuned or local_tiles.choose(problem, self.gpu)
        return source, [(key[0], found[key]) for key in keys]

    def _in_local_memory(self, table: Table, product: bool) -> dict[str, Any]:
        source, cuts = self._local_tiles(table, product)
        expected = {cut: round(1e3 * local_tiles.estimate_us(*cut, self.gpu)) for cut in dict.fromkeys(cuts)}
        rows = [(p.rows, p.columns, t.columns, t.blocks, t.step, t.rows, expected[p, t]) for p, t in cuts]
        names = ("rows_out", "columns_out", "columns", "blocks", "unroll", "rows", "nanoseconds")
        return {
            **dict(zip(names, np.array(rows, dtype=np.int64).T, strict=True)),
            "source": source,
            "lanes": np.full(len(rows), local_tiles.LANES),
            "channels": table["out_c"],
            "depth": table["kernel_h"] * table["kernel_w"] * table["in_c"],
        }

    def _depthwise(self, table: Table) -> dict[str, Any]:
        rows, columns, channels = table["out_h"], table["out_w"], table["out_c"]
        each = channels // np.maximum(table["in_c"], 1)
        lanes = np.where(each == 1, vectors.lanes_for(channels, self.lanes), 1)
        taps = table["kernel_h"] * table["kernel_w"]
        parts = _rows(table["batch"], table["in_w"], each, *_window(table))
        families = _families(depthwise_family, parts, table.kinds == "integer_depthwise")
        names = ("columns", "rows", "padding")
        source, knobs = self._configurations(families, rows, channels, _exact(table), names)
        window = (table[name] for name in ("kernel_w", "stride_w", "dilation_w"))
        problem = strips.StripProblem(rows, columns, lanes, *window)
        tuned = strips.fit(strips.Strips(**knobs), problem)
        estimate = strips.choose(problem, self.gpu if self.processor == "gpu" else None)
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


def _families(of: Callable[..., Family], parts: list[list[int]], integers: NDArray[np.bool_]) -> list[Family]:
    """Of each row, in ``parts`` as ``of`` takes them."""
    found = (of(*part) for part in parts)
    return [of_integers(f) if integer else f for f, integer in zip(found, integers.tolist(), strict=True)]


def _convolutions(table: Table, channels: Integers, lanes: Integers) -> winograd.Convolutions:
    return winograd.Convolutions(table["out_h"], table["out_w"], table["in_c"], channels, lanes)


def _number(setting: Any) -> int:
    return strips.PADDINGS.index(setting) if isinstance(setting, str) else int(setting)


def _whole(channels: Integers) -> Integers:
    """Channels in whole vectors of a phone's GPU."""
    return -(-channels // register_tiles.STEP) * register_tiles.STEP


def _rows(*columns: Integers) -> list[list[int]]:
    rows: list[list[int]] = np.stack(columns, axis=1).tolist()
    return rows


def _window(table: Table) -> list[Integers]:
    return [table[name] for name in _WINDOW]


def _exact(table: Table) -> NDArray[np.int64]:
    return np.stack([table["in_h"], table["pad_top"], table["pad_bottom"]], axis=1)
