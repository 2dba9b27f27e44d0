"""Tiles in local memory: what the model proposes is legal for the problem and the device."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.tiles.local_tiles import (
    LocalProblem,
    LocalTiles,
    candidates,
    choose,
    estimate_us,
    fit,
    window_rows_at_once,
)

LARGE = Gpu("local", 4, 32, 132, 1024, 48 * 1024).filled()
SMALL = Gpu("local", 4, 32, 8, 128, 32 * 1024).filled()

EXTENT = st.integers(1, 256)
PROBLEMS = st.builds(
    LocalProblem,
    batch=st.integers(1, 4), rows=EXTENT, columns=EXTENT, channels=st.integers(1, 2048),
    channels_in=st.integers(1, 2048), kernel_h=st.sampled_from([1, 3, 5, 7]), kernel_w=st.sampled_from([1, 3, 5, 7]),
    stride=st.integers(1, 2), stride_w=st.integers(1, 2),
)  # fmt: skip
SMALL_NUMBER = st.integers(1, 64)
TILES = st.builds(LocalTiles, *[SMALL_NUMBER] * 8)


@given(TILES)
def test_a_word_is_read_as_it_was_written(tiles: LocalTiles) -> None:
    assert LocalTiles.parse(tiles.word()) == tiles


@pytest.mark.parametrize("word", ["", "7x1x2", "7x1-2x4x16-8-1", "axbxc-1x1x1-8-1", "7x1x2-2x4x16-8-1-1"])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(ValueError):
        LocalTiles.parse(word)


@settings(max_examples=examples(60))
@given(PROBLEMS, st.sampled_from([LARGE, SMALL]))
def test_what_is_proposed_fits_the_device(problem: LocalProblem, gpu: Gpu) -> None:
    found = candidates(problem, gpu, 8)
    assert found and len(set(found)) == len(found)
    for tiles in found:
        rows, columns, channels = tiles.tile
        at_once = window_rows_at_once(problem, tiles, gpu.local_memory)
        high = (rows - 1) * problem.stride + at_once if problem.kernel_h > 1 else rows
        wide = (columns - 1) * problem.stride_w + problem.kernel_w if problem.kernel_w > 1 else columns
        held = 4 * tiles.step * (high * wide + at_once * problem.kernel_w * channels)
        assert held <= gpu.local_memory
        assert tiles.threads <= gpu.max_group
        assert 4 * tiles.columns * tiles.rows * tiles.blocks <= gpu.registers
        assert tiles.parts <= math.ceil(problem.channels_in / tiles.step) and tiles.step <= problem.channels_in
        assert fit(tiles, problem) == tiles


@settings(max_examples=examples(60))
@given(PROBLEMS)
def test_the_estimate_is_the_best_that_the_model_knows(problem: LocalProblem) -> None:
    best, *others = candidates(problem, LARGE, 4)
    assert best == choose(problem, LARGE)
    assert all(estimate_us(problem, best, LARGE) <= estimate_us(problem, other, LARGE) * 1.05 for other in others)


@given(TILES, PROBLEMS)
def test_a_relatives_tiles_are_made_legal(tiles: LocalTiles, problem: LocalProblem) -> None:
    made = fit(tiles, problem)
    assert made.step <= problem.channels_in and made.parts <= math.ceil(problem.channels_in / made.step)
    assert problem.rows > 1 or made.tile[0] == 1
    assert fit(made, problem) == made


def test_few_positions_are_cut_into_parts() -> None:
    few, many = LocalProblem(1, 7, 7, 512, 512, 3, 3), LocalProblem(1, 224, 224, 64, 64, 3, 3)
    assert choose(few, LARGE).parts > 1 and choose(many, LARGE).parts == 1


def test_a_window_without_room_comes_row_by_row() -> None:
    stem = LocalProblem(1, 112, 112, 64, 3, 7, 7, 2, 2)
    tiles = LocalTiles(7, 1, 1, 2, 4, 16, 3)
    assert window_rows_at_once(stem, tiles, LARGE.local_memory) == 1
    assert window_rows_at_once(msgspec.structs.replace(stem, kernel_h=3, kernel_w=3), tiles, LARGE.local_memory) == 3
