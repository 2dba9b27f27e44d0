from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_codl.kernels.tiles.many import best_tile, default_rows, largest_divisors, packings, step_cycles
from tvm_codl.kernels.tiles.tiles import Problem, candidates, choose, cycles, largest_divisor
from tvm_codl.kernels.tiles.vectors import PACK_POSITIONS, packing

PROBLEMS = st.builds(
    Problem,
    rows=st.integers(1, 200),
    columns=st.integers(1, 200),
    channels=st.integers(1, 40).map(lambda blocks: 16 * blocks),
    depth=st.integers(1, 5000),
    channels_in=st.integers(1, 512),
    lanes=st.just(16),
    registers=st.sampled_from([16, 32]),
)


@settings(max_examples=examples(150))
@given(PROBLEMS)
def test_the_best_tile_is_the_first_candidate(problem: Problem) -> None:
    found = best_tile(problem.columns, problem.blocks, problem.depth, problem.lanes, problem.registers)
    assert found == candidates(problem, 1)[0]


@settings(max_examples=examples(100))
@given(PROBLEMS)
def test_estimated_rows_and_cycles(problem: Problem) -> None:
    tiles = choose(problem)
    one = [np.array([n]) for n in (problem.columns, tiles.blocks, problem.depth, problem.lanes)]
    assert default_rows(np.array([problem.rows]), *one)[0] == tiles.rows
    count = -(-problem.columns // tiles.columns) * (problem.blocks // tiles.blocks) * problem.rows
    tail = 1.03 if problem.columns % tiles.columns else 1.0
    step = step_cycles(np.array([tiles.columns]), *one[1:])[0]
    assert np.isclose(count * step * tail, cycles(problem, tiles.columns, tiles.blocks))


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 16)), min_size=1, max_size=9))
def test_divisors(pairs: list[tuple[int, int]]) -> None:
    found = largest_divisors(np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs]))
    assert found.tolist() == [largest_divisor(*pair) for pair in pairs]


@settings(max_examples=examples(300))
@given(st.integers(1, 200), st.integers(1, 4 * PACK_POSITIONS), st.sampled_from([1, 2, 4, 8, 16]))
def test_vectors(channels: int, positions: int, widest: int) -> None:
    lanes, fill = packing(channels, positions, widest)
    found = packings(np.array([channels]), np.array([positions]), widest)
    assert (int(found[0][0]), bool(found[1][0])) == (lanes, fill)
    assert lanes <= widest
    assert fill or channels % lanes == 0
    # What is filled up takes fewer vectors than what divides the channels.
    assert not fill or -(-channels // lanes) < channels // packing(channels, 1, widest)[0]


def test_three_channels_are_one_vector() -> None:
    assert packing(3, PACK_POSITIONS, 16) == packing(3, PACK_POSITIONS, 4) == (4, True)
    assert packing(3, PACK_POSITIONS - 1, 16) == packing(3, PACK_POSITIONS, 1) == (1, False)
    assert packing(14, PACK_POSITIONS, 16) == (2, False)
