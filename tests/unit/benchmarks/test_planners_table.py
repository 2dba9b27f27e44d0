from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.planners_table import Planners, Variant, markdown, page, summary
from tvm_codl.errors import CheckFailed
from tvm_codl.report.statistics import Statistics


def network(name: str, ideal: float = 4.5, errors: float = 1e-6, memory: int = 100, **medians: float) -> Planners:
    """Ours takes 5 ms and is predicted to take 5.2; the others' medians are given."""
    times = {
        "cpu": 10.0,
        "gpu": 8.0,
        "layer_wise": 7.0,
        "one_ratio": 6.0,
        "codl": 6.5,
        "greedy_chains": 5.5,
        "ours": 5.0,
    }
    times |= medians
    variants = {
        n: Variant(
            Statistics.of([ms * 0.9, ms, ms * 1.1]), 5.2, 3, errors, memory + 20 * (n == "ours") if memory else 0
        )
        for n, ms in times.items()
    }
    return Planners(name, "phone", variants, ideal, 20, 1700000000.0)


def test_a_network_is_compared_with_the_better_processor_and_every_planner() -> None:
    one = network("net")
    assert (one.best_single_ms, one.speedup, one.efficiency) == (8.0, 1.6, 0.9)
    assert one.against("greedy_chains") == pytest.approx(1.1)
    assert one.prediction == pytest.approx(1.04)
    assert one.memory == pytest.approx(1.2)
    assert network("net", memory=0).memory is None
    slow = replace(one, variants={name: each for name, each in one.variants.items() if name != "gpu"})
    assert (slow.best_single_ms, slow.memory) == (10.0, pytest.approx(1.2)), "the other one does not run all operators"
    assert "|  | 7.00 |" in markdown([slow])
    assert msgspec.json.decode(msgspec.json.encode(one), type=Planners) == one


def test_the_summary_counts_what_must_not_be_and_takes_geometric_means() -> None:
    good, bad = network("good"), network("bad", ours=10.0, one_ratio=40.0, errors=2e-4)
    found = summary([good, bad])
    assert found.networks == 2
    assert found.speedup == pytest.approx((1.6 * 0.8) ** 0.5)
    assert found.least_speedup == pytest.approx(0.8)
    assert found.efficiency == pytest.approx((0.9 + 0.45) / 2)
    assert found.against_ratio == pytest.approx((1.2 * 4) ** 0.5)
    assert (found.losses, found.behind, found.behind_greedy, found.right) == (1, 1, 1, 1)
    assert found.against_codl == pytest.approx((1.3 * 0.65) ** 0.5)
    assert found.largest_error == 2e-4
    assert found.most_memory == pytest.approx(1.2)
    even = summary([network("even", ours=5.54), network("tie", ours=8.0, greedy_chains=8.0, one_ratio=8.0, codl=8.0)])
    assert (even.losses, even.behind, even.behind_greedy) == (0, 0, 0), "within a hundredth is neither loss nor behind"
    assert summary([network("unknown", memory=0)]).most_memory is None


def test_no_networks_have_no_summary() -> None:
    with pytest.raises(CheckFailed, match="no network"):
        summary([])


def test_the_table_has_a_row_a_network_and_as_many_cells_in_each() -> None:
    lines = markdown([network("a"), replace(network("b", memory=0), model="b")]).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 4
    assert len({line.count("|") for line in table}) == 1
    assert table[2].startswith(
        "| a | 10.0 | 8.00 | 7.00 | 6.00 | 6.50 | 5.50 | 5.00 (4.60 to 5.40) | 5.20 | 1.60 | 0.90 | 1.30 | 1.10 | 1.20 |"
    )
    assert table[2].endswith("| 1.20 |") and table[3].endswith("|  |")
    assert "2 networks: speedup 1.60" in lines[-1]


def test_the_page_has_the_cells_of_the_table() -> None:
    results = [network("a"), replace(network("b", memory=0), model="b")]
    (table,) = page(results).tables
    lines = markdown(results).splitlines()
    assert lines[0] == "| " + " | ".join(table.words + table.numbers) + " |"
    assert lines[2:4] == ["| " + " | ".join(map(str, row)) + " |" for row in table.rows]
    assert table.note == lines[-1]
