"""Which convolutions of 1 x 1 windows are computed as one row of positions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.kernels.tiles.one_row import in_one_row
from tvm_codl.kernels.tiles.register_tiles import Problem, vector_registers

SIZE, CHANNELS = st.integers(1, 70), st.sampled_from([16, 64, 256, 2048])


def problem(rows: int, columns: int, channels_in: int, channels: int, lanes: int = 8) -> Problem:
    return Problem(rows, columns, channels, channels_in, channels_in, lanes, vectors=vector_registers(lanes))


def test_seven_columns_fit_no_tile_of_avx2() -> None:
    assert in_one_row(problem(7, 7, 2048, 512)) and in_one_row(problem(7, 7, 512, 2048))
    assert not in_one_row(problem(56, 56, 64, 256)), "tiles divide its columns"
    assert not in_one_row(problem(7, 7, 2048, 512, lanes=16)), "AVX-512 has registers for two blocks of seven columns"


@given(SIZE, SIZE, CHANNELS, CHANNELS, st.sampled_from([4, 8, 16]))
def test_a_convolution_is_judged_alone_as_among_many(h: int, w: int, c: int, k: int, lanes: int) -> None:
    one = problem(h, w, c, k, lanes)
    sizes = (np.array([5, n]) for n in (h, w, k, c, c, lanes))
    many = Problem(*sizes, vectors=one.vectors)
    assert bool(in_one_row(one)) == bool(in_one_row(many)[1])
    assert h > 1 or not in_one_row(one)
