"""What if an operator were elsewhere: the plan with some placements forced, and the rest planned around them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

import msgspec

from tvm_codl.errors import UsageError, UserError
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.plan.candidates import Axes, Candidate
from tvm_codl.plan.energy import Energy, least_energy
from tvm_codl.plan.explain.prices import Prices
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.reasons import columns, placement_words, uniform_plan
from tvm_codl.plan.search import find
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
    """An operator that is elsewhere; ``before_ms`` and ``after_ms`` are its time and its sharing."""

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
    graph = problem.graph
    _verify(graph, problem.axes, asked)
    before = plan or _search(problem, Prices.of(problem), {}, energy)
    prices = Prices.of(problem, [before], asked)
    now = prices.choice(before)
    forced = list(now)
    for node, operator in enumerate(graph.operators):
        if operator.id in asked:
            forced[node] = prices.index(node, asked[operator.id])
    alone = _prediction(prices, forced, energy)
    after = msgspec.structs.replace(_search(problem, prices, asked, energy, forced), settings=before.settings)
    then = prices.choice(after)
    if energy is None and prices.predicted_ms(forced) < prices.predicted_ms(then):
        # The search goes by replays; what is known of plans that share, or do not, may say otherwise.
        placements = [prices.placement(*one) for one in enumerate(forced)]
        after, then = msgspec.structs.replace(problem.placed(placements, KEPT), settings=before.settings), tuple(forced)
    lines = tuple(
        msgspec.structs.replace(line, cpu_ms=_known(options[0].cpu_ms), gpu_ms=_known(options[1].gpu_ms), reason=ASKED)
        if line.operator in asked
        else line
        for line, options in ((line, prices.choices[line.operator]) for line in after.operators)
    )
    return WhatIf(
        _prediction(prices, now, energy),
        alone,
        _prediction(prices, then, energy),
        _moves(prices, now, then, asked),
        problem.corrected(msgspec.structs.replace(after, operators=lines)),
    )


def parse_asked(texts: Sequence[str], graph: OpGraph, axes: Axes) -> dict[int, Placement]:
    """``OP=PLACEMENT`` texts as placements by operator id.

    Raises :class:`UsageError` for another form, :class:`UserError` for an operator that the network does not have or
    that several have the name of, and for a placement that the verifier refuses.
    """
    found: dict[int, Placement] = {}
    for text in texts:
        name, equals, place = text.rpartition("=")
        if not (name and equals and place):
            raise UsageError(f"{text!r} is no change of a plan", next=f"write {_FORM}")
        id = _operator(name.strip(), graph).id
        if id in found:
            raise UsageError(f"operator {id} is placed twice", f"{text!r} and {placement_words(found[id])}")
        found[id] = _placement(place.strip(), text)
    _verify(graph, axes, found)
    return found


def what_if_text(found: WhatIf) -> str:
    """What changed, one line an operator, and the three predictions."""
    rows = [("#", "operator", "the plan", "what if", "ms", "ms then", "")]
    for move in found.moves:
        places = placement_words(move.before), placement_words(move.after)
        times = f"{move.before_ms:.3f}", f"{move.after_ms:.3f}"
        rows.append((str(move.operator), move.name[:40], *places, *times, "asked" if move.asked else "moved"))
    lines = columns(rows, left=(1, 2, 3, 6)) if found.moves else ["nothing changes: the plan has it there already"]
    asked = sum(move.asked for move in found.moves)
    totals = (
        ("the plan", found.as_is, ""),
        ("only what was asked", found.alone, f"{asked} operators moved"),
        ("the rest planned again", found.replanned, f"{len(found.moves)} operators moved"),
    )
    for what, prediction, moved in totals:
        words = f"{what + ':':<24}predicted {prediction.ms:.3f} ms"
        words += f" ({prediction.ms - found.as_is.ms:+.3f})" if moved else ""
        words += f", {prediction.mj:.3f} mJ" if prediction.mj else ""
        lines.append(words + (f", {moved}" if moved else ""))
    if found.as_is.mj:
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
    plan = uniform_plan(graph, "cpu")
    lines = tuple(msgspec.structs.replace(o, placement=asked.get(o.operator, o.placement)) for o in plan.operators)
    try:
        verify_plan(msgspec.structs.replace(plan, operators=lines), graph, axes)
    except UserError as error:
        raise UserError(error.what, error.evidence, "ask for one of the legal placements") from error


def _search(
    problem: Problem,
    prices: Prices,
    asked: Mapping[int, Placement],
    energy: Energy | None,
    known: Sequence[int] = (),
) -> Plan:
    """The best plan in which ``asked`` holds, no worse than ``known``, the numbers of such a one's candidates."""
    options = prices.only(asked)
    places = [prices.placement(*one) for one in enumerate(known)]
    again = [_among(options[o.id], place) for o, place in zip(problem.graph.operators, places, strict=bool(known))]
    network = (problem.graph, options, problem.sharing, problem.axes)
    if energy is not None:
        return least_energy(*network, energy, problem.name, problem.device, known=[again] if again else ())
    return find(*network, problem.name, problem.device, known=[again] if again else ()).plan


def _among(options: Sequence[Candidate], placement: Placement) -> int:
    return next(index for index, option in enumerate(options) if option.placement == placement)


def _prediction(prices: Prices, choice: Sequence[int], energy: Energy | None) -> Prediction:
    times = prices.times(choice)
    return Prediction(prices.predicted_ms(choice), energy.of(times) if energy else 0.0)


def _moves(prices: Prices, now: Sequence[int], then: Sequence[int], asked: Mapping[int, Placement]) -> tuple[Move, ...]:
    shares = prices.shares(now), prices.shares(then)
    moves = []
    for node, operator in enumerate(prices.graph.operators):
        if now[node] != then[node]:
            before_ms, after_ms = (
                float(prices.costs.work[node][choice[node]]) + sum(share[node].values())
                for choice, share in zip((now, then), shares, strict=True)
            )
            before, after = prices.placement(node, now[node]), prices.placement(node, then[node])
            moves.append(Move(operator.id, operator.name, before, after, before_ms, after_ms, operator.id in asked))
    return tuple(moves)


def _known(ms: float) -> float:
    """A plan's JSON has no infinity."""
    return round(ms, 7) if ms < float("inf") else 0.0
