from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings

from tests.examples import examples
from tests.unit.plan.test_eliminate import brute_force, problems
from tvm_codl.plan.eliminate import Edges, Table, evaluate
from tvm_codl.plan.relax import relax


@given(problems())
@settings(max_examples=examples(300))
def test_the_optimum_lies_between_the_bound_and_the_choice(problem: tuple[list[Table], Edges]) -> None:
    nodes, edges = problem
    choice, bound = relax(nodes, edges)
    best = brute_force(nodes, edges)
    assert bound <= best + 1e-9 and best <= evaluate(choice, nodes, edges) + 1e-9


def random_problem(size: int, pairs: Iterable[tuple[int, int]], values: int = 8) -> tuple[list[Table], Edges]:
    random = np.random.default_rng(0)
    return [random.random(values) for _ in range(size)], {pair: random.random((values, values)) for pair in pairs}


@pytest.mark.parametrize(
    "pairs",
    [
        [(i, i + 1) for i in range(9)],
        [(0, i) for i in range(1, 10)],
        [(i, i + 1) for i in range(9)] + [(i, i + 3) for i in range(0, 7, 3)],
        [(0, 1), (1, 2), (0, 2)],
    ],
)
def test_chains_trees_residuals_and_rings_are_solved_exactly(pairs: list[tuple[int, int]]) -> None:
    nodes, edges = random_problem(10, pairs, values=3)
    choice, bound = relax(nodes, edges)
    assert evaluate(choice, nodes, edges) == pytest.approx(brute_force(nodes, edges)) == bound


def test_more_effort_bounds_better() -> None:
    grid = [(i, i + 1) for i in range(99) if i % 10 != 9] + [(i, i + 10) for i in range(90)]
    nodes, edges = random_problem(100, grid)
    hasty, careful = (relax(nodes, edges, effort) for effort in (0.0, 1.0))
    assert hasty[1] < careful[1] <= min(evaluate(choice, nodes, edges) for choice, _ in (hasty, careful))


def test_a_choice_that_is_forbidden_is_taken_only_where_there_is_no_other() -> None:
    inf = np.inf
    nodes = [np.array([inf, 1.0]), np.array([0.0, inf]), np.array([2.0, 1.0])]
    edges = {pair: np.zeros((2, 2)) for pair in itertools.combinations(range(3), 2)}
    assert relax(nodes, edges) == ((1, 0, 1), 2.0)
    edges[0, 1] = np.full((2, 2), inf)
    assert evaluate(relax(nodes, edges)[0], nodes, edges) == inf
