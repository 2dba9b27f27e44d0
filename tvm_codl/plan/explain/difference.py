"""Difference: the operators that two plans of one network place otherwise, and their times."""

from __future__ import annotations

import msgspec

from tvm_codl.plan.explain.prices import Prices
from tvm_codl.plan.explain.text import milliseconds, table_lines, wrapped
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.reasons import placement_words


class Line(msgspec.Struct, frozen=True):
    """One operator that differs; a plan that does not have it, by number and name, has no placement for it.

    ``a_ms`` and ``b_ms`` are the operator's time and its transfers; none where a plan does not say.
    """

    operator: int
    name: str
    a: Placement | None
    b: Placement | None
    a_ms: float | None
    b_ms: float | None


class Side(msgspec.Struct, frozen=True):
    """What a plan states, 0 for nothing, and ``priced_ms``, its prediction by the cost model for both plans, none without
    one."""

    model: str
    device: str
    operators: int
    predicted_ms: float
    measured_ms: float
    predicted_mj: float
    priced_ms: float | None


class Difference(msgspec.Struct, frozen=True):
    """``lines`` are in the order of plan ``a``, then what only ``b`` has; ``same`` counts the operators that agree."""

    a: Side
    b: Side
    lines: tuple[Line, ...]
    same: int


def compare(a: Plan, b: Plan, prices: Prices | None = None) -> Difference:
    """With ``prices``, made for both plans, their times are predicted anew, by the same costs; else they are as stated."""
    ours, theirs = _times(a, prices), _times(b, prices)
    first, second = ({(o.operator, o.name): o for o in plan.operators} for plan in (a, b))
    lines, same = [], 0
    for key in dict.fromkeys([*first, *second]):
        here, there = first.get(key), second.get(key)
        if here and there and here.placement == there.placement:
            same += 1
            continue
        a_place, b_place = here.placement if here else None, there.placement if there else None
        lines.append(Line(*key, a_place, b_place, ours.get(key), theirs.get(key)))
    return Difference(_side(a, prices), _side(b, prices), tuple(lines), same)


def difference_text(difference: Difference, names: tuple[str, str]) -> str:
    """One line for each operator that differs, then the whole; ``names`` are what the plans are called."""
    rows = [
        (
            str(line.operator),
            line.name,
            *("absent" if place is None else placement_words(place) for place in (line.a, line.b)),
            *map(milliseconds, (line.a_ms, line.b_ms)),
            milliseconds(None if line.a_ms is None or line.b_ms is None else line.b_ms - line.a_ms, "+"),
        )
        for line in difference.lines
    ]
    headings = ("#", "operator", "a", "b", "a ms", "b ms", "b - a")
    text = table_lines(headings, rows, left=("operator", "a", "b")) if rows else []
    text.append(f"{len(rows)} operators differ, {difference.same} are the same")
    for letter, name, side in zip("ab", names, (difference.a, difference.b), strict=True):
        says = [f"{side.operators} operators"]
        says += [f"predicted {side.priced_ms:.3f} ms"] if side.priced_ms is not None else []
        says += [f"states {side.predicted_ms:.3f} ms"] if side.predicted_ms else []
        says += [f"measured {side.measured_ms:.3f} ms"] if side.measured_ms else []
        says += [f"{side.predicted_mj:.3f} mJ by a power table (a model)"] if side.predicted_mj else []
        text += wrapped(f"{letter}: {name}: {', '.join(says)}", rest="   ")
    return "\n".join(text)


def _times(plan: Plan, prices: Prices | None) -> dict[tuple[int, str], float]:
    """By operator number and name; without operators of which nothing is stated."""
    if prices is None:
        return {(o.operator, o.name): o.planned_ms + o.share_ms for o in plan.operators if o.planned_ms or o.share_ms}
    times = prices.operator_ms(prices.choice(plan))
    return {(o.id, o.name): ms for o, ms in zip(prices.problem.graph.operators, times, strict=True)}


def _side(plan: Plan, prices: Prices | None) -> Side:
    priced = prices.predicted_ms(prices.choice(plan)) if prices else None
    count = len(plan.operators)
    return Side(plan.model, plan.device, count, plan.predicted_ms, plan.measured_ms, plan.predicted_mj, priced)
