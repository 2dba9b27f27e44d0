from __future__ import annotations

import io

import msgspec
from rich.console import Console

from tvm_codl.report.ranking import Measured, Predicted, Ranking, agreement, agreement_words, in_order, ranking_table
from tvm_codl.report.statistics import Statistics


def ranking() -> Ranking:
    predicted = in_order(
        [Predicted(n, 9, ms * 2, ms * 3, ms, 0.1, 0.5) for n, ms in (("c", 3.0), ("b", 1.5), ("a", 1.5))]
    )
    measured = (
        Measured("b", Statistics(1.4, 1.3, 1.6, 40), 1.45, 1e-6),
        Measured("a", Statistics(1.75, 1.7, 1.9, 40), 1.7, 1e-6),
    )
    found = agreement({p.model: p.coexec_ms for p in predicted}, {m.model: m.latency_ms.median for m in measured})
    return Ranking("phone", 100, 0, predicted, measured, found)


def test_equal_predictions_come_in_the_order_of_names() -> None:
    assert [p.model for p in ranking().predicted] == ["a", "b", "c"]


def test_the_table_marks_the_fastest_measured_and_leaves_the_rest_open() -> None:
    out = io.StringIO()
    Console(file=out, width=160).print(ranking_table(ranking()))
    rows = {name: line for line in out.getvalue().splitlines() for name in "abc" if f" {name} " in line}
    assert "1.40" in rows["b"] and "1 *" in rows["b"]
    assert "1.75" in rows["a"] and "*" not in rows["a"]
    assert "3.00" in rows["c"] and "*" not in rows["c"]


def test_words_say_what_the_choice_by_prediction_costs() -> None:
    found = ranking().agreement
    assert found is not None
    words = agreement_words(found)
    assert "a, measured 25.0% slower than the best measured, b" in words
    alone = agreement_words(agreement({"a": 1.0}, {"a": 1.0}))
    assert alone == "1 model measured: there is no order to compare. The best by prediction, a, is the best measured."


def test_a_ranking_is_json_and_back() -> None:
    assert msgspec.json.decode(msgspec.json.encode(ranking()), type=Ranking) == ranking()
