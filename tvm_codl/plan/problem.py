"""Problem: a network to plan, and what any placement in it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.calibration import Calibration
from tvm_codl.plan.candidates import Axes, Candidate, Predictor, candidates, predict_splits
from tvm_codl.plan.costs import build_costs
from tvm_codl.plan.energy import Energy
from tvm_codl.plan.plan import Placement, Plan, single_processor
from tvm_codl.plan.search import assemble, round_ms, search


@dataclass(frozen=True)
class Problem:
    """``costs`` predicts pieces, ``sharing`` is the device's; ``name`` and ``device`` go into the plans.

    ``correction`` and ``calibration`` are factors of simulated times: of plans that use both processors on this device,
    and of this network on each processor.
    """

    graph: OpGraph
    axes: Axes
    costs: Predictor
    sharing: TransferCost
    name: str = ""
    device: str = ""
    correction: float = 1.0
    calibration: Calibration = field(default_factory=Calibration)

    @cached_property
    def options(self) -> dict[int, tuple[Candidate, ...]]:
        """By operator id, the candidates of the search: whole on the CPU, whole on the GPU, splits."""
        return candidates(self.graph, self.axes, self.costs)

    def search(
        self,
        options: Mapping[int, Sequence[Candidate]] | None = None,
        energy: Energy | None = None,
        starts: Sequence[Sequence[int]] = (),
    ) -> Plan:
        """The best plan of ``options``, by default all, no worse than the choices ``starts`` (:func:`.search.search`)."""
        costs = (self.graph, options or self.options, self.sharing, self.axes)
        return search(*costs, self.name, self.device, energy=energy, starts=starts).plan

    def whole(self, operator: int) -> tuple[Candidate, Candidate]:
        """An operator on the CPU, and on the GPU."""
        cpu, gpu = self.options[operator][:2]
        return cpu, gpu

    def single_processor_plans(self) -> dict[str, Plan]:
        """By ``cpu`` and ``gpu``, the network on that processor alone; without one that does not run every operator."""
        wholes = [self.whole(operator.id) for operator in self.graph.operators]
        return {
            on: self.plan([pair[i] for pair in wholes], f"{on} only")
            for i, on in enumerate(("cpu", "gpu"))
            if all(math.isfinite(pair[i].ms) for pair in wholes)
        }

    def split(self, wanted: Sequence[tuple[int, Placement]]) -> list[Candidate]:
        """Splits of operators, given by their places in the graph, with predicted times, in their order."""
        operators = self.graph.operators
        return predict_splits(self.graph, self.axes, self.costs, [(operators[node], split) for node, split in wanted])

    def place(self, placements: Sequence[Placement], why: str) -> Plan:
        """The plan with these placements, one for each operator.

        Raises :class:`KeyError` for an axis that an operator has not, :class:`~tvm_codl.graph.rule.NoSplit` for a cut
        that it does not allow.
        """
        chosen = {
            node: option
            for node, (operator, placement) in enumerate(zip(self.graph.operators, placements, strict=True))
            for option in self.options[operator.id]
            if option.placement == placement
        }
        missing = [(node, placement) for node, placement in enumerate(placements) if node not in chosen]
        chosen |= zip((node for node, _ in missing), self.split(missing), strict=True)
        return self.plan([chosen[node] for node in range(len(chosen))], why)

    def plan(self, chosen: Sequence[Candidate], why: str, chains: Sequence[int] = ()) -> Plan:
        """The plan of these candidates, one for each operator in the graph's order, with its predicted time.

        ``why`` becomes the reason of every operator, ``chains`` their chains' numbers.
        """
        operators = self.graph.operators
        options = {operator.id: (candidate,) for operator, candidate in zip(operators, chosen, strict=True)}
        costs = build_costs(self.graph, options, self.sharing, self.axes)
        wholes, count = [self.whole(operator.id) for operator in operators], len(operators)
        plan = assemble(costs, (0,) * count, wholes, chains or (-1,) * count, (why,) * count, self.name, self.device)
        return self.correct(plan)

    def correct(self, plan: Plan) -> Plan:
        """The plan with its simulated time corrected by today's :meth:`factor` instead of the one that it had."""
        factor = self.factor(plan.placements)
        if factor == plan.correction:
            return plan
        corrected = round_ms(plan.predicted_ms / plan.correction * factor)
        return msgspec.structs.replace(plan, predicted_ms=corrected, correction=factor)

    def factor(self, placements: Sequence[Placement]) -> float:
        """The factor of a simulated time: the :attr:`calibration` of a plan's only processor, or that of both times
        :attr:`correction`."""
        on = single_processor(placement.on for placement in placements)
        factor = getattr(self.calibration, on) if on else self.calibration.shared * self.correction
        return round(float(factor), 4)
