from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from tvm_codl.report.ranking import (
    Measured,
    Predicted,
    Ranking,
    agreement,
    agreement_words,
    in_order,
    ranking_page,
    ranking_table,
)
from tvm_codl.report.statistics import Statistics
from tvm_codl.report.tables_page import Bar


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


def printed(ranking: Ranking, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(ranking_table(ranking))
    return out.getvalue().splitlines()


def test_the_tables_show_all_and_mark_the_fastest_measured() -> None:
    rows = {name: [line for line in printed(ranking(), 160) if f" {name} " in line] for name in "abc"}
    assert [len(lines) for lines in rows.values()] == [2, 2, 1]
    assert "1.40" in rows["b"][1] and "1 *" in rows["b"][1]
    assert "1.75" in rows["a"][1] and "*" not in "".join(rows["a"])
    assert "3.00" in rows["c"][0] and "*" not in rows["c"][0]
    predicted_only = printed(msgspec.structs.replace(ranking(), measured=(), agreement=None), 160)
    assert len(predicted_only) == 8 and not any("measured" in line for line in predicted_only)


@pytest.mark.parametrize("name", ["mobilenet_v2_140.onnx", "models/of/a/search/variant-0123456789.onnx"])
def test_they_fit_a_narrow_terminal_without_cutting(name: str) -> None:
    predicted = Predicted(name, 900, 1234.5, 2345.6, 1034.5, 103.4, 1.0)
    measured = Measured(name, Statistics(1134.5, 1111.1, 1222.2, 40), 1145.0, 1e-6)
    text = "\n".join(printed(Ranking("a phone", 100, 0, (predicted,), (measured,)), 80))
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    for number in ("1034.50", "103.40", "1234.50", "2345.60", "100%", "1134.50", "1111.10", "1222.20"):
        assert number in text
    assert "".join(line.split("│")[2].strip() for line in text.splitlines() if "│" in line) == 2 * name


def test_words_say_what_the_choice_by_prediction_costs() -> None:
    found = ranking().agreement
    assert found is not None
    words = agreement_words(found)
    assert "a, measured 25.0% slower than the best measured, b" in words
    alone = agreement_words(agreement({"a": 1.0}, {"a": 1.0}))
    assert alone == "1 model measured: there is no order to compare. The best by prediction, a, is the best measured."


def test_a_ranking_is_json_and_back() -> None:
    assert msgspec.json.decode(msgspec.json.encode(ranking()), type=Ranking) == ranking()


def test_the_page_has_the_tables_with_bars_of_one_scale() -> None:
    found = ranking()
    page = ranking_page(found)
    assert found.agreement is not None and page.verdict == agreement_words(found.agreement)
    shares = [
        [cell.parts[0][1] for row in table.rows for cell in row if isinstance(cell, Bar)] for table in page.tables
    ]
    assert shares == [pytest.approx([0.5, 0.5, 1.0]), pytest.approx([1.4 / 3, 1.75 / 3])]
    only = ranking_page(msgspec.structs.replace(found, measured=(), agreement=None))
    assert len(only.tables) == 1 and only.verdict.startswith("Predicted only")
