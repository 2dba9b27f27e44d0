"""Explanation: why each operator of a plan is where it is, and what its second choice would cost."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.plan.candidates import Predictor
from tvm_codl.plan.explain.prices import Prices, parts
from tvm_codl.plan.improve import second
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.reasons import placement_words
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

#: Of an operator's other placements so many, the likeliest by the search's costs, are replayed.
LIKELY = 2
WIDTH = 120
_ENDS = "the network's ends"
_LEGEND = (
    "here: the operator's time, waits and sharing apart.  share: what sharing its inputs and the network's ends costs.  "
    "known: measured, or the deviation of the prediction.  second choice: the other placement that costs least, and by how "
    "much the plan's predicted time grows if this operator alone moves there, the rest not being planned again "
    "(--what-if does that)."
)


class Estimator(Predictor, Protocol):
    """What is asked of a cost model: times in ms with the deviation of their logarithms, and which are measurements."""

    def estimate(
        self, workloads: Sequence[Workload], processor: Processor
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...

    def measured(self, workload: Workload, processor: Processor) -> bool: ...


class Other(msgspec.Struct, frozen=True):
    """Another placement, and by how much the plan's predicted time in ms grows (negative: shrinks) with it."""

    placement: Placement
    more_ms: float


class Shared(msgspec.Struct, frozen=True):
    """What an input costs in ms that operator ``source`` makes; -1 is the network's inputs and outputs, none all of them
    together."""

    source: int | None
    ms: float


class Explained(msgspec.Struct, frozen=True):
    """One operator.  Times in ms: ``cpu_ms`` and ``gpu_ms`` whole on either processor, none where it does not run;
    ``here_ms`` as it is placed, ``shared`` its sharing.

    ``chain`` are the operators of its chain, itself too, empty outside of one.  ``measured``: both parts' times are
    measurements; ``deviation`` is that of the logarithm of the time of the part that takes longer, to first order a share
    of it.  It is none where only the plan is known, and no cost model.  ``second`` is the best of all other placements, ``otherwise`` the best that is not another cut of the same axis.
    """

    operator: int
    name: str
    placement: Placement
    cpu_ms: float | None
    gpu_ms: float | None
    here_ms: float
    shared: tuple[Shared, ...]
    chain: tuple[int, ...]
    measured: bool
    deviation: float | None
    second: Other | None
    otherwise: Other | None
    reason: str


class Explanation(msgspec.Struct, frozen=True):
    """``predicted_ms`` is what these prices say of the plan, with the plan's ``correction``; none where only the plan is
    known.  What the plan itself says is ``stated_ms``, ``stated_mj``, ``measured_ms``, ``searched_ms`` and ``bound_ms``, 0
    for nothing."""

    model: str
    device: str
    predicted_ms: float | None
    stated_ms: float
    stated_mj: float
    measured_ms: float
    searched_ms: float
    bound_ms: float
    operators: tuple[Explained, ...]


def explanation(plan: Plan, prices: Prices, model: Estimator) -> Explanation:
    """Explains a legal plan for which ``prices`` were made, by ``model``."""
    choice = prices.choice(plan)
    total = prices.times(choice).total_ms
    known, shares = _known(plan, prices, model), prices.shares(choice)
    nodes = {operator.id: node for node, operator in enumerate(prices.graph.operators)}
    found = []
    for planned, chain in zip(plan.operators, _chains(plan), strict=True):
        node, options = nodes[planned.operator], prices.choices[planned.operator]
        others = _others(prices, choice, node, total, plan.correction)
        kind = (planned.placement.on, planned.placement.axis)
        measured, deviation = known[planned.operator]
        found.append(
            Explained(
                planned.operator,
                planned.name,
                planned.placement,
                _finite(options[0].cpu_ms),
                _finite(options[1].gpu_ms),
                here_ms=float(prices.costs.work[node][choice[node]]),
                shared=tuple(Shared(source, ms) for source, ms in shares[node].items()),
                chain=chain,
                measured=measured,
                deviation=deviation,
                second=others[0] if others else None,
                otherwise=next((o for o in others if (o.placement.on, o.placement.axis) != kind), None),
                reason=planned.reason,
            )
        )
    return _whole(plan, total * plan.correction, found)


def stated(plan: Plan) -> Explanation:
    """What a plan says of itself, where no cost model is at hand."""
    found = [
        Explained(
            planned.operator,
            planned.name,
            planned.placement,
            planned.cpu_ms or None,
            planned.gpu_ms or None,
            here_ms=planned.planned_ms,
            shared=(Shared(None, planned.share_ms),) if planned.share_ms else (),
            chain=chain,
            measured=False,
            deviation=None,
            second=None,
            otherwise=None,
            reason=planned.reason,
        )
        for planned, chain in zip(plan.operators, _chains(plan), strict=True)
    ]
    return _whole(plan, None, found)


def _whole(plan: Plan, predicted_ms: float | None, operators: Sequence[Explained]) -> Explanation:
    says = (plan.predicted_ms, plan.predicted_mj, plan.measured_ms, plan.searched_ms, plan.bound_ms)
    return Explanation(plan.model, plan.device, predicted_ms, *says, tuple(operators))


def _chains(plan: Plan) -> list[tuple[int, ...]]:
    """For each line of the plan the operators of its chain; none outside of one."""
    members: dict[int, list[int]] = {}
    for planned in plan.operators:
        members.setdefault(planned.chain, []).append(planned.operator)
    return [tuple(members[planned.chain]) if planned.chain >= 0 else () for planned in plan.operators]


def explanation_text(found: Explanation) -> str:
    """Two lines an operator, none longer than ``WIDTH``: its numbers, and its reason in words."""
    name = max([8, *(min(30, len(o.name)) for o in found.operators)])
    head = ["#".rjust(4), "operator".ljust(name), "placement".ljust(13)]
    head += [words.rjust(7) for words in ("cpu ms", "gpu ms", "here ms", "share")] + ["known".rjust(8), "second choice"]
    lines = [" ".join(head)]
    for o in found.operators:
        cells = [str(o.operator).rjust(4), _short(o.name, name).ljust(name), placement_words(o.placement).ljust(13)]
        cells += [_ms(ms).rjust(7) for ms in (o.cpu_ms, o.gpu_ms, o.here_ms, sum(s.ms for s in o.shared))]
        sure = "" if o.deviation is None else "measured" if o.measured else f"±{o.deviation:.0%}"
        cells += [sure.rjust(8), _other(o.second)]
        lines.append(" ".join(cells).rstrip())
        lines += textwrap.wrap(_words(o), WIDTH, initial_indent=" " * 5, subsequent_indent=" " * 7)
    return "\n".join([*lines, "", *textwrap.wrap(_LEGEND, WIDTH), *_totals(found)])


def _totals(found: Explanation) -> list[str]:
    lines = []
    if found.predicted_ms is not None:
        lines.append(f"predicted: {found.predicted_ms:.3f} ms")
    if found.stated_ms:
        lines.append(f"{'the plan states' if lines else 'predicted'}: {found.stated_ms:.3f} ms")
    if found.measured_ms:
        lines.append(f"measured: {found.measured_ms:.3f} ms")
    if found.bound_ms:
        gap = found.searched_ms / found.bound_ms - 1
        lines.append(
            f"search: {found.searched_ms:.3f} by its costs, no plan of its candidates below {found.bound_ms:.3f} "
            + ("(it is the best)" if gap < 1e-6 else f"(within {gap:.1%} of the best)")
        )
    if found.stated_mj:
        lines.append(f"energy: {found.stated_mj:.3f} mJ a run, by the power table: a model, not a measurement")
    return lines


def _words(o: Explained) -> str:
    words = [o.reason or "placed by hand"]
    shared = [(s.source, s.ms) for s in o.shared if s.source is not None]
    if shared:
        edges = (f"{_ENDS if source < 0 else source}: {_ms(ms)} ms" for source, ms in shared)
        words.append(f"sharing with {', '.join(edges)}")
    if o.chain:
        others = [id for id in o.chain if id != o.operator]
        words.append(f"in a chain with {', '.join(map(str, others[:8]))}{' ...' if len(others) > 8 else ''}")
    if o.otherwise is not None and o.second is not None and o.otherwise.placement != o.second.placement:
        words.append(f"otherwise {_other(o.otherwise)} ms")
    return "; ".join(words)


def _others(prices: Prices, choice: Sequence[int], node: int, total_ms: float, factor: float) -> list[Other]:
    """The best first.  Of those that the search's costs prefer, the few best and the best not cut along the same axis."""
    excess = second(node, choice, prices.costs)
    here = prices.placement(node, choice[node])
    ranked = [int(i) for i in np.argsort(excess, kind="stable") if i != choice[node] and np.isfinite(excess[i])]
    chosen = ranked[:LIKELY]
    apart = [i for i in ranked if (p := prices.placement(node, i)) and (p.on, p.axis) != (here.on, here.axis)]
    chosen += [i for i in apart[:1] if i not in chosen]
    found = []
    for index in chosen:
        moved = [*choice]
        moved[node] = index
        found.append(Other(prices.placement(node, index), factor * (prices.times(moved).total_ms - total_ms)))
    return sorted(found, key=lambda other: other.more_ms)


def _known(plan: Plan, prices: Prices, model: Estimator) -> dict[int, tuple[bool, float]]:
    """For each operator, whether its parts' times are measurements, and the deviation of the longer one's."""
    operators = {operator.id: operator for operator in prices.graph.operators}
    asked: dict[Processor, list[tuple[int, Workload]]] = {"cpu": [], "gpu": []}
    for planned in plan.operators:
        id = planned.operator
        for processor, axis, lo, hi in parts(planned.placement, prices.axes, id):
            asked[processor].append((id, Workload.of(operators[id], prices.graph, axis, lo, hi)))
    longest: dict[int, tuple[float, float]] = {}
    measured: dict[int, bool] = {}
    for processor, pairs in asked.items():
        ms, sigma = model.estimate([w for _, w in pairs], processor) if pairs else (np.zeros(0), np.zeros(0))
        for (id, workload), time, deviation in zip(pairs, ms.tolist(), sigma.tolist(), strict=True):
            longest[id] = max(longest.get(id, (-1.0, 0.0)), (time, deviation))
            measured[id] = measured.get(id, True) and model.measured(workload, processor)
    return {id: (measured[id], deviation) for id, (_, deviation) in longest.items()}


def _finite(ms: float) -> float | None:
    """JSON has no infinity."""
    return ms if math.isfinite(ms) else None


def _short(name: str, width: int) -> str:
    return name if len(name) <= width else f"{name[: width - 1]}…"


def _other(other: Other | None) -> str:
    return f"{placement_words(other.placement)} {other.more_ms:+.3f}" if other else ""


def _ms(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"{ms:.3f}" if ms < 10 else f"{ms:.2f}"
