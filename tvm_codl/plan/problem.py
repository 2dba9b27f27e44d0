"""Problem: a network that is to be planned, and what any placement in it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import msgspec
import numpy as np

from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.calibration import UNKNOWN, Calibration, alone
from tvm_codl.plan.candidates import Axes, Candidate, Predictor, candidates
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator
from tvm_codl.plan.search import replayed, tables
from tvm_codl.records.pieces import Pieces, add_halves


@dataclass(frozen=True)
class Problem:
    """``costs`` predicts pieces, ``sharing`` is the device's; ``name`` and ``device`` go into the plans.

    ``correction`` is by how much longer than its replay a plan takes that shares the network, and ``calibration`` by how
    much longer this network takes than its operators.
    """

    graph: OpGraph
    axes: Axes
    costs: Predictor
    sharing: TransferCost
    name: str = ""
    device: str = ""
    correction: float = 1.0
    calibration: Calibration = UNKNOWN

    @cached_property
    def options(self) -> dict[int, tuple[Candidate, ...]]:
        """By operator id, the candidates among which the search chooses: whole on the CPU, whole on the GPU, cuts."""
        return candidates(self.graph, self.axes, self.costs)

    def whole(self, operator: int) -> tuple[Candidate, Candidate]:
        """An operator on the CPU, and on the GPU."""
        cpu, gpu = self.options[operator][:2]
        return cpu, gpu

    def split(self, wanted: Sequence[tuple[int, Placement]]) -> list[Candidate]:
        """Splits of operators, given by their places in the graph, with the times that the cost model predicts for them.

        They come back in their order; the model is asked once for each processor.
        """
        cpu, gpu = Pieces(self.graph), Pieces(self.graph)
        for (node, name), alike in groupby(wanted, key=lambda one: (one[0], one[1].axis)):
            operator = self.graph.operators[node]
            ends = [placement.parts(self.axes[operator.id][name].extent) for _, placement in alike]
            add_halves(cpu, gpu, operator, name, ends)
        times = (self.costs.predict(cpu, "cpu"), self.costs.predict(gpu, "gpu")) if wanted else ((), ())
        return [Candidate(placement, float(c), float(g)) for (_, placement), c, g in zip(wanted, *times, strict=True)]

    def placed(self, placements: Sequence[Placement], why: str) -> Plan:
        """The plan with these placements, one for each operator.

        Raises :class:`KeyError` for an axis that an operator has not, :class:`~tvm_codl.graph.rule.NoSplit` for a place.
        """
        found: dict[int, Candidate] = {}
        missing = []
        for node, (operator, placement) in enumerate(zip(self.graph.operators, placements, strict=True)):
            known = next((c for c in self.options[operator.id] if c.placement == placement), None)
            if known is None:
                missing.append((node, placement))
            else:
                found[node] = known
        found |= {node: one for (node, _), one in zip(missing, self.split(missing), strict=True)}
        return self.plan([found[node] for node in range(len(found))], why)

    def plan(self, chosen: Sequence[Candidate], why: str, chains: Sequence[int] = ()) -> Plan:
        """The plan with these placements, one for each operator in the graph's order, and its replay's time.

        ``why`` becomes the reason of every operator, ``chains`` their chains' numbers.
        """
        operators = self.graph.operators
        options = {operator.id: (one,) for operator, one in zip(operators, chosen, strict=True)}
        costs = tables(self.graph, options, self.sharing, self.axes)
        total = replayed(self.graph, options, self.sharing, costs, (0,) * len(operators)).total_ms
        share = [float(host[0]) for host in costs.host]
        for (_, b), edge in costs.edges.items():
            share[b] += float(edge[0, 0])
        lines = []
        for node, (operator, one) in enumerate(zip(operators, chosen, strict=True)):
            cpu, gpu = self.whole(operator.id)
            lines.append(
                PlannedOperator(
                    operator.id,
                    operator.name,
                    one.placement,
                    cpu_ms=rounded(cpu.ms),
                    gpu_ms=rounded(gpu.ms),
                    planned_ms=rounded(float(costs.work[node][0])),
                    share_ms=rounded(share[node]),
                    chain=chains[node] if chains else -1,
                    reason=why,
                )
            )
        return self.corrected(Plan(self.name, self.device, tuple(lines), predicted_ms=rounded(total)))

    def corrected(self, plan: Plan) -> Plan:
        """A plan with its replay as predicted by what is known now (:meth:`factor`).  What it was corrected by before is
        taken back."""
        factor = self.factor([line.placement for line in plan.operators])
        if factor == plan.correction:
            return plan
        corrected = rounded(plan.predicted_ms / plan.correction * factor)
        return msgspec.structs.replace(plan, predicted_ms=corrected, correction=factor)

    def factor(self, placements: Sequence[Placement]) -> float:
        """By how much longer than its replay a plan with these placements takes: by :attr:`calibration` of its processor, or
        of both and :attr:`correction` if both have a part in it."""
        processor = alone(placement.on for placement in placements)
        found = getattr(self.calibration, processor) if processor else self.calibration.shared * self.correction
        return round(float(found), 4)


def rounded(ms: float) -> float:
    """Microseconds with one digit; what is infinite is left out of a plan, whose JSON has no infinity."""
    return round(float(ms), 7) if np.isfinite(ms) else 0.0
