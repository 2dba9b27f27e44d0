"""What if an operator were elsewhere: the plan with some placements forced, and the rest planned around them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from tvm_codl.errors import UsageError, UserError
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.plan.candidates import Axes
from tvm_codl.plan.energy import Energy
from tvm_codl.plan.explain.prices import Prices
from tvm_codl.plan.explain.text import milliseconds, table_lines, wrapped
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.reasons import placement_words
from tvm_codl.plan.search import round_ms
from tvm_codl.plan.verify import verify_plan

ASKED = "as was asked"
KEPT = "as it was: to plan it again gains nothing"
_SPLIT = re.compile(r"(?P<axis>[^@]+)@(?P<at>\d+)(\+(?P<cpu>\d+)-(?P<gpu>\d+))?")
_FORM = "OP=PLACEMENT: an operator's number or name, then cpu, gpu, or a cut: height@12, channels@64"


class Prediction(msgspec.Struct, frozen=True, omit_defaults=True):
    """``mj``: millijoules by a power table, a model; 0 where energy was not asked for."""

    ms: float
    mj: float = 0.0


class Move(msgspec.Struct, frozen=True):
    """An operator that is elsewhere; ``before_ms`` and ``after_ms`` are its time and its transfers."""

    operator: int
    name: str
    before: Placement
    after: Placement
    before_ms: float
    after_ms: float
    asked: bool


class WhatIf(msgspec.Struct, frozen=True):
    """``as_is`` is the plan, ``alone`` with only what was asked for changed, ``replanned`` with all else planned anew.

    ``moves`` are the differences of the plan and ``plan``, the re-planned one, in the graph's order.
    """

    as_is: Prediction
    alone: Prediction
    replanned: Prediction
    moves: tuple[Move, ...]
    plan: Plan


def what_if(
    problem: Problem, asked: Mapping[int, Placement], plan: Plan | None = None, energy: Energy | None = None
) -> WhatIf:
    """``asked``: placements by operator id; ``plan``: what they are compared with, by default the search's own.

    Cuts that are not among the search's candidates get predicted times.  With ``energy`` the search minimises that.
    Raises :class:`UserError` for a placement that the verifier refuses, and for an operator that does not run there.
    """
    _verify(problem.graph, problem.axes, asked)
    before = plan or problem.search(energy=energy)
    prices = Prices.of(problem, [before], asked)
    now = prices.choice(before)
    forced = list(now)
    for node, operator in enumerate(problem.graph.operators):
        if operator.id in asked:
            forced[node] = prices.index(node, asked[operator.id])
    alone = _predict(prices, forced, energy)
    after = problem.search(prices.restrict(asked), energy, [forced])
    then = prices.choice(after)
    if energy is None and prices.predicted_ms(forced) < prices.predicted_ms(then):
        # The search goes by simulated runs, without the problem's factors.
        after, then = problem.place(prices.placements(forced), KEPT), tuple(forced)
    lines = list(after.operators)
    for node, line in enumerate(lines):
        if line.operator in asked:  # restrict() hid the times of the whole operator
            cpu, gpu = problem.whole(line.operator)
            lines[node] = replace(line, cpu_ms=round_ms(cpu.cpu_ms), gpu_ms=round_ms(gpu.gpu_ms), reason=ASKED)
    return WhatIf(
        _predict(prices, now, energy),
        alone,
        _predict(prices, then, energy),
        _moves(prices, now, then, asked),
        problem.correct(replace(after, operators=tuple(lines), settings=before.settings)),
    )


def parse_asked(texts: Sequence[str], graph: OpGraph, axes: Axes) -> dict[int, Placement]:
    """``OP=PLACEMENT`` texts as placements by operator id.

    Raises :class:`UsageError` for another form, :class:`UserError` for an operator that the network does not have or
    that several have the name of, and for a placement that the verifier refuses.
    """
    asked: dict[int, Placement] = {}
    for text in texts:
        name, equals, place = text.rpartition("=")
        if not (name and equals and place):
            raise UsageError(f"{text!r} is no change of a plan", next=f"write {_FORM}")
        id = _operator(name.strip(), graph).id
        if id in asked:
            raise UsageError(f"operator {id} is placed twice", f"{text!r} and {placement_words(asked[id])}")
        asked[id] = _placement(place.strip(), text)
    _verify(graph, axes, asked)
    return asked


def what_if_text(result: WhatIf) -> str:
    """What moves, and what the network then takes."""
    rows = [
        (
            *(str(move.operator), move.name, placement_words(move.before), placement_words(move.after)),
            *(milliseconds(move.before_ms), milliseconds(move.after_ms), "asked" if move.asked else "moved"),
        )
        for move in result.moves
    ]
    headings = ("#", "operator", "the plan", "what if", "ms", "ms then", "")
    lines = ["nothing changes: the plan has it there already"]
    if rows:
        lines = table_lines(headings, rows, left=("operator", "the plan", "what if", ""))
    asked = sum(move.asked for move in result.moves)
    totals = (
        ("the plan", result.as_is, ""),
        ("only what was asked", result.alone, f"{asked} operators moved"),
        ("the rest planned again", result.replanned, f"{len(result.moves)} operators moved"),
    )
    for what, prediction, moved in totals:
        words = f"{what + ':':<24}predicted {prediction.ms:.3f} ms"
        words += f" ({prediction.ms - result.as_is.ms:+.3f})" if moved else ""
        words += f", {prediction.mj:.3f} mJ" if prediction.mj else ""
        lines += wrapped(words + (f", {moved}" if moved else ""), rest=" " * 24)
    if result.as_is.mj:
        lines.append("millijoules are by the power table: a model, not a measurement")
    return "\n".join(lines)


def _operator(name: str, graph: OpGraph) -> Operator:
    called = [o for o in graph.operators if o.name == name] or [o for o in graph.operators if str(o.id) == name]
    if len(called) == 1:
        return called[0]
    if called:
        numbers = ", ".join(str(o.id) for o in called)
        raise UserError(f"{len(called)} operators are called {name!r}", f"their numbers: {numbers}", "give a number")
    near = difflib.get_close_matches(name, [o.name for o in graph.operators], 3)
    evidence = f"operators {graph.operators[0].id} to {graph.operators[-1].id}" + (
        f"; similar names: {', '.join(near)}" if near else ""
    )
    raise UserError(f"the network has no operator {name!r}", evidence, "tvm-codl plan MODEL --explain lists them")


def _placement(words: str, text: str) -> Placement:
    if words in ("cpu", "gpu"):
        return Placement("cpu" if words == "cpu" else "gpu")
    match = _SPLIT.fullmatch(words)
    if match is None:
        raise UsageError(f"{text!r} is no change of a plan", f"{words!r} is no placement", f"write {_FORM}")
    return Placement("split", match["axis"], int(match["at"]), (int(match["cpu"] or 0), int(match["gpu"] or 0)))


def _verify(graph: OpGraph, axes: Axes, asked: Mapping[int, Placement]) -> None:
    lines = tuple(PlannedOperator(o.id, o.name, asked.get(o.id, Placement("cpu"))) for o in graph.operators)
    try:
        verify_plan(Plan("", "", lines), graph, axes)
    except UserError as error:
        raise UserError(error.what, error.evidence, "ask for one of the legal placements") from error


def _predict(prices: Prices, choice: Sequence[int], energy: Energy | None) -> Prediction:
    return Prediction(prices.predicted_ms(choice), energy.measure(prices.times(choice)) if energy else 0.0)


def _moves(prices: Prices, now: Sequence[int], then: Sequence[int], asked: Mapping[int, Placement]) -> tuple[Move, ...]:
    before, after = prices.placements(now), prices.placements(then)
    times = zip(prices.operator_ms(now), prices.operator_ms(then), strict=True)
    return tuple(
        Move(operator.id, operator.name, before[node], after[node], *ms, operator.id in asked)
        for node, (operator, ms) in enumerate(zip(prices.problem.graph.operators, times, strict=True))
        if now[node] != then[node]
    )
