from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_codl.kernels.gpu import KINDS, PHONES, Gpu, Kind, usual
from tvm_codl.kernels.tiles import strips
from tvm_codl.kernels.tiles.groups import USUAL, group_of
from tvm_codl.kernels.tiles.register_tiles import (
    KNOBS,
    SHARED,
    Problem,
    Tiles,
    candidates,
    choose,
    cycles,
    fit,
    shared_taps,
)
from tvm_codl.kernels.tiles.vectors import PACK_POSITIONS, largest_divisor, missing_conv2d, packing
from tvm_codl.kernels.tiles.window import padded, reach, whole_tiles

NAMES = ("rows", "columns", "channels", "depth", "channels_in", "lanes")


def problems(kind: Kind) -> st.SearchStrategy[Problem]:
    lanes = 4 if kind in PHONES else 16
    return st.builds(
        Problem,
        rows=st.integers(1, 200),
        columns=st.integers(1, 200),
        channels=st.integers(1, 40).map(lambda blocks: lanes * blocks),
        depth=st.integers(1, 5000),
        channels_in=st.integers(1, 512),
        lanes=st.just(lanes),
        gpu=st.just(usual(kind, lanes)),
    )


SOME: tuple[Kind, ...] = ("played", "bifrost", "adreno", "local")
PROBLEMS = st.sampled_from(SOME).flatmap(problems)
TILES = st.builds(Tiles, *(st.integers(1, most) for most in (14, 6, 4, 9, 1, 64)))


@settings(max_examples=examples(150))
@given(PROBLEMS)
def test_the_estimate_is_the_first_candidate_and_the_cheapest(problem: Problem) -> None:
    tiles = choose(problem)
    best, *others = candidates(problem, 1000)
    assert (tiles.columns, tiles.blocks) == best
    assert all(cycles(problem, *best) <= cycles(problem, *other) for other in others)
    assert problem.rows % tiles.rows == 0 and problem.blocks % tiles.blocks == 0
    assert problem.holds(tiles.columns, tiles.blocks) or tiles.columns == 1


@settings(max_examples=examples(60))
@given(st.sampled_from(SOME).flatmap(lambda k: st.lists(st.tuples(problems(k), TILES, st.booleans()), min_size=1)))
def test_many_at_once_are_each_as_alone(cases: list[tuple[Problem, Tiles, bool]]) -> None:
    columns = {name: np.array([getattr(problem, name) for problem, _, _ in cases]) for name in NAMES}
    tuned = Tiles(*(np.array([getattr(tiles, name) for _, tiles, _ in cases]) for name in KNOBS))
    together = Problem(**columns, gpu=cases[0][0].gpu)
    result = fit(tuned, together, np.array([known for *_, known in cases]))
    for i, (problem, tiles, known) in enumerate(cases):
        alone = fit(tiles, problem) if known else choose(problem)
        assert [int(getattr(alone, name)) for name in KNOBS] == [int(getattr(result, name)[i]) for name in KNOBS]


@given(st.integers(1, 300), st.integers(1, 5000))
def test_where_avx2_adds_a_result_to_its_broadcast_both_fit_the_registers(columns: int, depth: int) -> None:
    """LLVM spilled tiles of 8 columns and more by one block of channels: 20 to 50 GFLOP/s of 80."""
    on_avx2 = Problem(14, columns, 256, depth, 256, 8, vectors=16)
    assert all(2 * (c + 1) <= 16 for c, blocks in candidates(on_avx2, 99) if blocks == 1)
    assert (5, 2) in candidates(Problem(14, 14, 256, 1024, 1024, 8, vectors=16), 2)
    assert (14, 1) in candidates(Problem(14, 14, 256, 1024, 1024, 16), 99), "AVX-512 broadcasts from memory"


def test_a_product_reads_large_weights_once() -> None:
    """BERT's 9 MB of them came from memory again for each 8 of 128 rows: 78 GFLOP/s of 125 with AVX-512."""
    for units, depth in ((3072, 768), (768, 3072), (768, 768)):
        assert choose(Problem(1, 128, units, depth, depth, 16)).weights_first == 1


@given(st.integers(1, 300), st.integers(1, 16))
def test_the_largest_divisor(extent: int, at_most: int) -> None:
    assert largest_divisor(extent, at_most) == max(d for d in range(1, at_most + 1) if extent % d == 0)


@given(st.integers(1, 120), st.integers(1, 120), st.sampled_from([3, 5]), st.sampled_from([1, 2]))
def test_strips_leave_no_tail_where_one_of_a_few_columns_does_not(
    rows: int, columns: int, kernel: int, stride: int
) -> None:
    cut = strips.choose(strips.StripProblem(rows, columns, 16, kernel, stride, 1), None)
    most = 7 if kernel == 3 else 10
    whole = [width for width in range(3, most + 1) if columns % width == 0]
    if whole:
        assert cut.columns == max(whole)
    else:  # two columns more are loaded for each strip
        widths = range(min(columns, 3), min(columns, most - 1) + 1)
        assert cut.columns in widths
        strip = int(cut.columns)
        assert -(-columns // strip) * (strip + 2) == min(-(-columns // width) * (width + 2) for width in widths)
    assert cut.rows == (2 if stride == 1 and rows > 1 else 1)
    assert strips.PADDINGS[int(cut.padding)] == "inline"


@given(st.integers(1, 120), st.integers(1, 120))
def test_strips_of_a_played_gpu_copy_what_they_read(rows: int, columns: int) -> None:
    """Its compiler keeps a condition at each load."""
    problem = strips.StripProblem(rows, columns, 16, 3, 1, 1)
    cut = strips.choose(problem, Gpu())
    assert (strips.PADDINGS[int(cut.padding)], cut.rows) == ("item", 1)
    assert cut.columns == strips.choose(problem, None).columns


@given(st.integers(1, 120), st.integers(1, 7), st.integers(1, 3), st.integers(1, 2), st.sampled_from(KINDS[1:]))
def test_strips_of_a_real_gpu_fit_its_registers(
    columns: int, kernel: int, stride: int, dilation: int, kind: Kind
) -> None:
    gpu = usual(kind)
    cut = strips.choose(strips.StripProblem(9, columns, 4, kernel, stride, dilation), gpu)
    held = int(cut.columns) + reach(int(cut.columns), stride, kernel, dilation) + kernel
    assert 1 <= cut.columns <= columns and (cut.columns == 1 or 4 * held <= gpu.registers)
    assert cut.threads == gpu.group and strips.PADDINGS[int(cut.padding)] == "inline"


@pytest.mark.parametrize("columns", [7, 14, 28, 56, 112])
def test_strips_leave_no_tail_where_registers_are_few(columns: int) -> None:
    """Mali-G78's compiler spills its conditions.  Where nothing divides the columns a tail costs less than strips of one."""
    cut = strips.choose(strips.StripProblem(columns, columns, 4, 3, 1, 1), usual("valhall"))
    assert cut.columns == (3 if columns == 7 else 2)


@settings(max_examples=examples(300))
@given(st.integers(1, 200), st.integers(1, 4 * PACK_POSITIONS), st.sampled_from([1, 2, 4, 8, 16]))
def test_vectors(channels: int, positions: int, widest: int) -> None:
    lanes, fill = packing(channels, positions, widest)
    assert lanes <= widest
    assert fill or channels % lanes == 0
    # What is filled up takes fewer vectors than what divides the channels.
    assert not fill or -(-channels // lanes) < channels // packing(channels, 1, widest)[0]
    extra = missing_conv2d(channels, positions, 10 * positions, widest)
    assert not packing(channels + extra, positions, widest)[1]  # weights larger than the results are never filled up


def test_three_channels_are_one_vector() -> None:
    assert packing(3, PACK_POSITIONS, 16) == packing(3, PACK_POSITIONS, 4) == (4, True)
    assert packing(3, PACK_POSITIONS - 1, 16) == packing(3, PACK_POSITIONS, 1) == (1, False)
    assert packing(14, PACK_POSITIONS, 16) == (2, False)


@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 5), st.integers(1, 2), st.integers(0, 2))
def test_the_copy_holds_all_that_a_window_reads(size: int, stride: int, kernel: int, dilation: int, pad: int) -> None:
    results = max(1, (size + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1)
    need = reach(whole_tiles(results, 4), stride, kernel, dilation)
    copy = padded(size, size, pad, pad, need, need)
    assert copy.height >= need and copy.height >= size + pad
    assert math.prod((copy.height, copy.width)) == size * size or copy.needed


@settings(max_examples=examples(100))
@given(st.integers(1, 600), st.integers(1, 60), st.integers(1, 400), st.sampled_from(sorted(PHONES)))
def test_groups_fill_a_warp_and_leave_no_work_item_idle_where_the_grid_divides(
    channels: int, columns: int, rows: int, kind: Kind
) -> None:
    gpu = usual(kind)
    group = group_of((channels, columns, rows), gpu)
    size, grid = math.prod(group), (channels, columns, rows)
    assert size <= gpu.max_group and all(side <= extent for side, extent in zip(group, grid, strict=True))
    assert size >= min(gpu.warp, math.prod(grid)) or size * 2 > gpu.warp
    if channels % gpu.warp == 0:
        assert all(extent % side == 0 for side, extent in zip(group, grid, strict=True)) and size <= max(
            USUAL, gpu.warp
        )


def test_a_phones_tile_reads_few_vectors_for_its_multiply_adds() -> None:
    for kind in sorted(PHONES - {"adreno"}):
        for columns in (7, 14, 28, 56, 112, 224):
            tiles = choose(Problem(columns, columns, 512, 4608, 512, 4, usual(kind)))
            loads = (tiles.columns + 4 * tiles.blocks) / (tiles.columns * tiles.blocks * 16) * 128
            assert loads <= 13 and columns % tiles.columns == 0


def test_adrenos_tiles_keep_its_waves_and_share_inputs_where_they_can() -> None:
    """Beyond 20 vectors of results Adreno loses a third of its waves; fewer columns load more, unless taps share inputs."""
    for columns in (7, 14, 28, 56, 112, 224):
        tiles = choose(Problem(columns, columns, 512, 4608, 512, 4, usual("adreno")))
        assert tiles.columns * tiles.blocks <= 5
        window = Problem(columns, columns, 512, 4608, 512, 4, usual("adreno"), shared_taps(usual("adreno"), 3, 1, 1))
        tiles = choose(window)
        inputs = tiles.columns + SHARED - 1
        assert (inputs + 4 * SHARED) / (tiles.columns * SHARED * 16) * 128 <= 13
