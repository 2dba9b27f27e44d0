from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_codl.plan.eliminate import Edges, Table, evaluate, minimise


@st.composite
def problems(draw: Any, most_nodes: int = 7) -> tuple[list[Table], Edges]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=most_nodes))
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Few different values make ties; infinity forbids.
    values = np.array([0.0, 0.25, 0.5, 1.0, 2.0, 3.0, np.inf]) if draw(st.booleans()) else random.random(50)
    nodes = [random.choice(values[np.isfinite(values)], size) for size in sizes]
    # An edge may be stored in either direction.
    ends = [pair if draw(st.booleans()) else pair[::-1] for pair in chosen]
    return nodes, {(a, b): random.choice(values, (sizes[a], sizes[b])) for a, b in ends}


def brute_force(nodes: list[Table], edges: Edges) -> float:
    return min(evaluate(choice, nodes, edges) for choice in itertools.product(*(range(len(t)) for t in nodes)))


@given(problems())
@settings(max_examples=examples(300))
def test_elimination_finds_the_brute_force_optimum(problem: tuple[list[Table], Edges]) -> None:
    nodes, edges = problem
    found = minimise(nodes, edges)
    best = brute_force(nodes, edges)
    assert found.exact
    assert found.total == evaluate(found.choice, nodes, edges)
    assert found.total == best or found.total == pytest.approx(best)
    assert found.bound == found.total


@given(problems(), st.integers(1, 40))
@settings(max_examples=examples(200))
def test_with_small_tables_the_optimum_lies_between_bound_and_total(
    problem: tuple[list[Table], Edges], limit: int
) -> None:
    nodes, edges = problem
    found = minimise(nodes, edges, limit)
    best = brute_force(nodes, edges)
    assert found.bound <= best + 1e-9
    assert best <= found.total + 1e-9
    if found.exact:
        assert found.total == best or found.total == pytest.approx(best)


@given(problems())
@settings(max_examples=examples(50))
def test_the_same_problem_has_the_same_answer(problem: tuple[list[Table], Edges]) -> None:
    assert minimise(*problem) == minimise(*problem)
    assert minimise(*problem, 4) == minimise(*problem, 4)


def test_a_dense_graph_falls_back_to_a_bound_and_says_so() -> None:
    random = np.random.default_rng(0)
    nodes = [random.random(8) for _ in range(10)]
    edges = {pair: random.random((8, 8)) for pair in itertools.combinations(range(10), 2)}
    found = minimise(nodes, edges, limit=5000)
    assert not found.exact
    assert 0 < found.bound <= found.total
    greedy = evaluate([int(np.argmin(t)) for t in nodes], nodes, edges)
    assert found.total < greedy


def test_a_residual_network_of_a_hundred_operators_is_within_the_limit() -> None:
    random = np.random.default_rng(0)
    nodes = [random.random(34) for _ in range(100)]
    edges = {(i, i + 1): random.random((34, 34)) for i in range(99)}
    edges |= {(i, i + 3): random.random((34, 34)) for i in range(0, 96, 3)}
    assert minimise(nodes, edges).exact
