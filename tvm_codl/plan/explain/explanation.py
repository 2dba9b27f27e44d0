"""Explanation: why each operator of a plan is where it is, and what its second choice would cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tvm_codl.plan.candidates import PROCESSORS, Predictor
from tvm_codl.plan.eliminate import Table
from tvm_codl.plan.explain.prices import Prices
from tvm_codl.plan.explain.text import milliseconds, table_lines, wrapped
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.reasons import placement_words
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

#: Limit of an operator's other placements that are simulated, the best by the search's costs.
LIKELY = 2
_HEADINGS = ("#", "operator", "placement", "cpu", "gpu", "here", "transfer", "known")
#: Smaller differences are shown as none.
_SEEN_MS = 0.0005
_ENDS = "the network's ends"
_LEGEND = (
    "Times in ms.  cpu, gpu: the whole operator there.  here: its time as it is placed, without transfers.  "
    "transfer: waits, copies and layout changes of its inputs and the network's ends.  "
    "known: measured, or the deviation of the prediction.  second choice: the other placement that costs least, and by how "
    "much the plan's predicted time grows if this operator alone moves there, the rest not being planned again "
    "(--what-if does that)."
)


class Estimator(Predictor, Protocol):
    """A cost model that also tells the deviation of its times' logarithms, which of them are measurements, and which
    variants of its kernels the GPU runs."""

    def estimate(
        self, workloads: Sequence[Workload], processor: Processor
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...

    def measured(self, key: str, processor: Processor) -> bool: ...

    def gpu_variants(self, workloads: Sequence[Workload]) -> list[str]: ...


class Other(msgspec.Struct, frozen=True):
    """Another placement, and by how much the plan's predicted time in ms grows (negative: shrinks) with it."""

    placement: Placement
    more_ms: float


class Shared(msgspec.Struct, frozen=True):
    """The transfer in ms of the input that operator ``source`` makes; -1 for the network's inputs and outputs, none for the
    sum of all."""

    source: int | None
    ms: float


class Explained(msgspec.Struct, frozen=True):
    """One operator.  Times in ms: ``cpu_ms`` and ``gpu_ms`` whole on either processor, none where it does not run;
    ``here_ms`` as it is placed, ``shared`` its transfers.

    ``chain`` are the operators of its chain, itself too, empty outside of one.  ``measured``: both parts' times are
    measurements; ``deviation`` is that of the logarithm of the longer part's time, to first order relative, none without a
    cost model.  ``second`` is the best of all other placements, ``otherwise`` the best that is not another cut of the same axis.
    ``variant`` says which kernel the GPU runs for its part, and why; empty where it has none.
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
    variant: str = ""

    @property
    def known(self) -> str:
        """``measured``, or the deviation of the prediction: ``±7%``; empty without a cost model."""
        return "" if self.deviation is None else "measured" if self.measured else f"±{self.deviation:.0%}"


class Explanation(msgspec.Struct, frozen=True):
    """``predicted_ms`` is predicted anew, with the plan's ``correction``; none without a cost model.  ``stated_ms``,
    ``stated_mj``, ``measured_ms``, ``searched_ms`` and ``bound_ms`` are in the plan, 0 for none."""

    model: str
    device: str
    predicted_ms: float | None
    stated_ms: float
    stated_mj: float
    measured_ms: float
    searched_ms: float
    bound_ms: float
    operators: tuple[Explained, ...]


def explain(plan: Plan, prices: Prices, model: Estimator, others: bool = True) -> Explanation:
    """Explains a legal plan for which ``prices`` were made, by ``model``; without second choices where ``others`` are not
    wanted, as each of them is a simulated run."""
    choice, operators = prices.choice(plan), prices.problem.graph.operators
    total = prices.times(choice).total_ms
    parts = _parts(plan, prices)
    certainty, variants = _certainty(parts, model), _variants(parts["gpu"], model)
    transfers, growth = prices.costs.transfers(choice), prices.costs.growth(choice)
    nodes = {operator.id: node for node, operator in enumerate(operators)}
    lines = []
    for line in restate(plan).operators:
        node = nodes[line.operator]
        options = prices.choices[line.operator]
        ranked = _others(prices, choice, node, growth[node], total, plan.correction) if others else []
        kind = (line.placement.on, line.placement.axis)
        measured, deviation = certainty[line.operator]
        lines.append(
            replace(
                line,
                cpu_ms=_finite(options[0].cpu_ms),
                gpu_ms=_finite(options[1].gpu_ms),
                here_ms=float(prices.costs.work[node][choice[node]]),
                shared=tuple(Shared(operators[a].id if a >= 0 else -1, ms) for a, ms in transfers[node].items()),
                measured=measured,
                deviation=deviation,
                second=ranked[0] if ranked else None,
                otherwise=next((o for o in ranked if (o.placement.on, o.placement.axis) != kind), None),
                variant=variants.get(line.operator, ""),
            )
        )
    return replace(restate(plan), predicted_ms=total * plan.correction, operators=tuple(lines))


def restate(plan: Plan) -> Explanation:
    """What a plan says of itself, where no cost model is at hand."""
    chains: dict[int, list[int]] = {}
    for planned in plan.operators:
        chains.setdefault(planned.chain, []).append(planned.operator)
    lines = tuple(
        Explained(
            planned.operator,
            planned.name,
            planned.placement,
            planned.cpu_ms or None,
            planned.gpu_ms or None,
            here_ms=planned.planned_ms,
            shared=(Shared(None, planned.share_ms),) if planned.share_ms else (),
            chain=tuple(chains[planned.chain]) if planned.chain >= 0 else (),
            measured=False,
            deviation=None,
            second=None,
            otherwise=None,
            reason=planned.reason,
        )
        for planned in plan.operators
    )
    says = (plan.predicted_ms, plan.predicted_mj, plan.measured_ms, plan.searched_ms, plan.bound_ms)
    return Explanation(plan.model, plan.device, None, *says, lines)


def explanation_text(explanation: Explanation) -> str:
    """A line of numbers an operator, and its reason in words below."""
    head, *numbers = table_lines(_HEADINGS, map(_cells, explanation.operators), left=("operator", "placement"))
    lines = [head]
    for row, operator in zip(numbers, explanation.operators, strict=True):
        lines += [row, *wrapped(_words(operator), first=" " * 5, rest=" " * 7)]
    lines += ["", *wrapped(_LEGEND)]
    for total in _totals(explanation) + _gains(explanation):
        lines += wrapped(total, rest="  ")
    return "\n".join(lines)


def _cells(o: Explained) -> list[str]:
    times = [_ms(ms) for ms in (o.cpu_ms, o.gpu_ms, o.here_ms, sum(s.ms for s in o.shared))]
    return [str(o.operator), o.name, placement_words(o.placement), *times, o.known]


def _totals(of: Explanation) -> list[str]:
    lines = []
    if of.predicted_ms is not None:
        lines.append(f"predicted: {of.predicted_ms:.3f} ms")
    if of.stated_ms:
        lines.append(f"{'the plan states' if lines else 'predicted'}: {of.stated_ms:.3f} ms")
    if of.measured_ms:
        lines.append(f"measured: {of.measured_ms:.3f} ms")
    if of.bound_ms:
        gap = of.searched_ms / of.bound_ms - 1
        lines.append(
            f"search: {of.searched_ms:.3f} by its costs, no plan of its candidates below {of.bound_ms:.3f} "
            + ("(it is the best)" if gap < 1e-6 else f"(within {gap:.1%} of the best)")
        )
    if of.stated_mj:
        lines.append(f"energy: {of.stated_mj:.3f} mJ a run, by the power table: a model, not a measurement")
    return lines


def _gains(of: Explanation) -> list[str]:
    """Why second choices that gain were not taken."""
    gains = [-o.second.more_ms for o in of.operators if o.second is not None and o.second.more_ms < -_SEEN_MS]
    if not gains:
        return []
    has = "1 operator has" if len(gains) == 1 else f"{len(gains)} operators have"
    why = f"the plan was chosen {how_chosen(of.measured_ms, of.stated_mj)}"
    anew = "" if of.stated_mj else "; tvm-codl plan MODEL --again plans anew"
    return [f"{has} a second choice that gains by these costs, {milliseconds(max(gains))} ms at most: {why}{anew}"]


def how_chosen(measured_ms: float, stated_mj: float) -> str:
    """Why a plan that states this may have placements that others beat by today's costs."""
    if stated_mj:
        return "for its energy"
    return "by runs on the phone" if measured_ms > 0 else "by older costs, or by hand"


def _words(o: Explained) -> str:
    words = [o.reason or "placed by hand"]
    shared = [(s.source, s.ms) for s in o.shared if s.source is not None]
    if shared:
        edges = (f"{_ENDS if source < 0 else source}: {_ms(ms)} ms" for source, ms in shared)
        words.append(f"transfers with {', '.join(edges)}")
    if o.chain:
        others = [id for id in o.chain if id != o.operator]
        words.append(f"in a chain with {', '.join(map(str, others[:8]))}{' ...' if len(others) > 8 else ''}")
    if o.second is not None:
        words.append(f"second choice {_other(o.second)} ms")
    if o.otherwise is not None and o.second is not None and o.otherwise.placement != o.second.placement:
        words.append(f"otherwise {_other(o.otherwise)} ms")
    if o.variant:
        words.append(f"GPU kernel: {o.variant}")
    return "; ".join(words)


def _others(
    prices: Prices, choice: Sequence[int], node: int, growth: Table, total_ms: float, factor: float
) -> list[Other]:
    """The best first: of those with the least growth of the search's costs, ``LIKELY`` and the first of another kind."""
    placements = [candidate.placement for candidate in prices.choices[prices.problem.graph.operators[node].id]]
    kinds = [(placement.on, placement.axis) for placement in placements]
    ranked = [int(i) for i in np.argsort(growth, kind="stable") if i != choice[node] and np.isfinite(growth[i])]
    other_kind = [i for i in ranked if kinds[i] != kinds[choice[node]]][:1]
    others = []
    for index in dict.fromkeys(ranked[:LIKELY] + other_kind):
        moved = [*choice]
        moved[node] = index
        others.append(Other(placements[index], factor * (prices.times(moved).total_ms - total_ms)))
    return sorted(others, key=lambda other: other.more_ms)


#: Operators and the parts of them that one processor computes.
Parts = list[tuple[int, Workload]]


def _parts(plan: Plan, prices: Prices) -> dict[Processor, Parts]:
    operators = {operator.id: operator for operator in prices.problem.graph.operators}
    parts: dict[Processor, Parts] = {"cpu": [], "gpu": []}
    for planned in plan.operators:
        id, placement = planned.operator, planned.placement
        if placement.on != "split":
            parts[placement.on].append((id, Workload.of(operators[id], prices.problem.graph)))
            continue
        ends = placement.parts(prices.problem.axes[id][placement.axis].extent)
        for processor, (lo, hi) in zip(PROCESSORS, ends, strict=True):
            parts[processor].append((id, Workload.of(operators[id], prices.problem.graph, placement.axis, lo, hi)))
    return parts


def _certainty(parts: Mapping[Processor, Parts], model: Estimator) -> dict[int, tuple[bool, float]]:
    """For each operator, whether its parts' times are measurements, and the deviation of the longer one's."""
    longest: dict[int, tuple[float, float]] = {}
    measured: dict[int, bool] = {}
    for processor, pairs in parts.items():
        ms, sigma = model.estimate([w for _, w in pairs], processor) if pairs else (np.zeros(0), np.zeros(0))
        for (id, workload), time, deviation in zip(pairs, ms.tolist(), sigma.tolist(), strict=True):
            longest[id] = max(longest.get(id, (-1.0, 0.0)), (time, deviation))
            measured[id] = measured.get(id, True) and model.measured(workload.key, processor)
    return {id: (measured[id], deviation) for id, (_, deviation) in longest.items()}


def _variants(parts: Parts, model: Estimator) -> dict[int, str]:
    words = model.gpu_variants([workload for _, workload in parts]) if parts else []
    return {id: each for (id, _), each in zip(parts, words, strict=True)}


def _finite(ms: float) -> float | None:
    """JSON has no infinity."""
    return ms if math.isfinite(ms) else None


def _other(other: Other) -> str:
    more = 0.0 if abs(other.more_ms) <= _SEEN_MS else other.more_ms
    return f"{placement_words(other.placement)} {milliseconds(more, '+')}"


def _ms(ms: float | None) -> str:
    return milliseconds(ms) or "-"
