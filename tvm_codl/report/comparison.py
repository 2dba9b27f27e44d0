"""Comparison: two pages of one network side by side, from the data that their files carry."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec

from tvm_codl.errors import UserError
from tvm_codl.report.page import SEEN_MS, Data, Placed, Total, milliseconds
from tvm_codl.report.tables_page import Bar, PageTable, TablesPage

_DATA = re.compile(rb'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


class Difference(msgspec.Struct, frozen=True):
    """An operator that two pages place otherwise or give another time; none on a page that does not have it."""

    number: int
    name: str
    a: Placed | None
    b: Placed | None

    @property
    def ms(self) -> float:
        """What it takes more on page b, its transfers too."""
        return (_ms(self.b) or 0.0) - (_ms(self.a) or 0.0)


def read_data(path: Path) -> Data:
    """The data of a page that :func:`~tvm_codl.report.page.render` made.  Raises :class:`UserError` for another file."""
    text = path.read_bytes()
    remedy = "tvm-codl report MODEL -o PAGE.html"
    if path.suffix == ".json":
        remedy = f"tvm-codl report {shlex.quote(str(path))} -o {shlex.quote(str(path.with_suffix('.html')))}"
    found = _DATA.search(text)
    if found is None:
        raise UserError(f"{path} is no page that tvm-codl report wrote", "it carries no data of a plan", remedy)
    try:
        return msgspec.json.decode(found[1], type=Data)
    except msgspec.DecodeError as error:
        raise UserError(f"the data in {path} cannot be read", str(error), remedy) from error


def differences(a: Data, b: Data) -> list[Difference]:
    """Those that take longer or shorter first, by how much."""
    first, second = ({(o.number, o.name): o for o in data.operators} for data in (a, b))
    both = [Difference(*key, first.get(key), second.get(key)) for key in dict.fromkeys([*first, *second])]
    return sorted(filter(_differs, both), key=lambda each: -abs(each.ms))


def compare(a: Data, b: Data, names: tuple[str, str]) -> TablesPage:
    """``names`` are the pages' files.  Raises :class:`UserError` for pages of different networks."""
    common = {(o.number, o.name) for o in a.operators} & {(o.number, o.name) for o in b.operators}
    if a.title != b.title or not common:
        evidence = f"{names[0]} is of {a.title}, {names[1]} of {b.title}"
        if a.title == b.title:
            evidence = f"both are called {a.title} and have no operator in common"
        raise UserError("the two pages are of different networks", evidence)
    return TablesPage(
        f"{a.title}: two plans", _verdict(a, b), (("A", names[0]), ("B", names[1])), (_sides(a, b), _ways(a, b), _operators(a, b))
    )  # fmt: skip


def _verdict(a: Data, b: Data) -> str:
    ours, theirs = a.totals[0], b.totals[0]
    if ours.spread and theirs.spread:
        words = f"Measured: {_faster(ours.ms, theirs.ms)}"
        if ours.spread[0] <= theirs.spread[1] and theirs.spread[0] <= ours.spread[1]:
            words += "; p10 to p90 of the two overlap"
    else:
        words = f"Predicted: {_faster(a.predicted_ms, b.predicted_ms)}"
    phones = [dict(data.facts).get("phone", "") for data in (a, b)]
    return f"{words}." if phones[0] == phones[1] else f"{words}. The phones are not the same."


def _faster(a_ms: float, b_ms: float) -> str:
    fast, slow = ("B", "A") if b_ms < a_ms else ("A", "B")
    least, most = sorted((a_ms, b_ms))
    words = f"A takes {milliseconds(a_ms)} ms, B {milliseconds(b_ms)} ms"
    return f"{words}; {fast} is {most / least:.2f} times as fast as {slow}" if 0 < least < most else words


def _sides(a: Data, b: Data) -> PageTable:
    rows = [(letter, dict(data.facts).get("phone", ""), data.verdict) for letter, data in (("A", a), ("B", b))]
    return PageTable("What each page says", ("page", "phone", "verdict"), (), tuple(rows))


def _ways(a: Data, b: Data) -> PageTable:
    first, second = ({total.name: total for total in data.totals} for data in (a, b))
    rows = []
    for name in dict.fromkeys([*first, *second]):
        ours, theirs = first.get(name), second.get(name)
        more = "–"
        # The difference of a measured time and a predicted one says nothing of the plans.
        if ours and theirs and (ours.spread is None) == (theirs.spread is None):
            more = _more(theirs.ms - ours.ms)
        rows.append((name, _total(ours), _total(theirs), more))
    return PageTable("Ways to run it", ("way",), ("A ms", "B ms", "B − A"), tuple(rows))


def _operators(a: Data, b: Data) -> PageTable:
    found = differences(a, b)
    rows = tuple(
        (
            str(each.number), each.name, _bar(each.a), _bar(each.b),
            milliseconds(_ms(each.a)), milliseconds(_ms(each.b)), _more(each.ms),
        )
        for each in found
    )  # fmt: skip
    total = sum(each.ms for each in found)
    note = (
        f"Of {len(a.operators)} operators in A and {len(b.operators)} in B, {len(found)} differ in placement, kernel or time: "
        f"{_more(total)} ms in B. Times are each operator's own, its transfers too, as each page has them; the network's time "
        "may change by another amount, because both processors work at once."
    )
    if not found:
        note = f"None of the {len(a.operators)} operators differs in placement, kernel or time."
    words, numbers = ("#", "operator", "placement in A", "placement in B"), ("A ms", "B ms", "B − A")
    return PageTable("Operators that differ", words, numbers, rows, (("cpu", "CPU"), ("gpu", "GPU")), note)


def _differs(each: Difference) -> bool:
    a, b = each.a, each.b
    return a is None or b is None or (a.placement, a.variant) != (b.placement, b.variant) or abs(each.ms) > SEEN_MS


def _ms(placed: Placed | None) -> float | None:
    return None if placed is None else placed.here_ms + placed.transfer_ms


def _bar(placed: Placed | None) -> str | Bar:
    if placed is None:
        return "absent"
    words = f"{placed.placement} ({placed.variant})" if placed.variant else placed.placement
    return Bar(words, (("cpu", placed.cpu_share), ("gpu", 1 - placed.cpu_share)))


def _total(total: Total | None) -> str:
    if total is None:
        return "–"
    if total.spread is None:
        return f"{milliseconds(total.ms)} (predicted)"
    return f"{milliseconds(total.ms)} ({milliseconds(total.spread[0])} to {milliseconds(total.spread[1])})"


def _more(ms: float) -> str:
    return ("−" if ms < 0 else "+") + milliseconds(abs(ms))
