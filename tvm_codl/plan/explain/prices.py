"""Prices: what every placement of every operator of a network costs, and what a plan of them would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from tvm_codl.errors import UserError
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.costs import Costs, build_costs
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.reasons import placement_words
from tvm_codl.plan.simulate import Times


@dataclass(frozen=True)
class Prices:
    """``costs`` are those of the search's candidates and of whatever else was asked for."""

    problem: Problem
    costs: Costs

    @property
    def choices(self) -> Mapping[int, Sequence[Candidate]]:
        return self.costs.candidates

    @classmethod
    def of(cls, problem: Problem, plans: Sequence[Plan] = (), more: Mapping[int, Placement] | None = None) -> Prices:
        """Of a problem's candidates, and of the placements in ``plans`` and ``more`` (by operator id), all legal: those
        that are no candidates get predicted times."""
        choices, operators = dict(problem.options), problem.graph.operators
        places = {operator.id: node for node, operator in enumerate(operators)}
        wanted = [(o.operator, o.placement) for plan in plans for o in plan.operators] + [*(more or {}).items()]
        missing = [
            (places[id], placement)
            for id, placement in dict.fromkeys(wanted)
            if all(option.placement != placement for option in choices[id])
        ]
        for (node, _), candidate in zip(missing, problem.split(missing), strict=True):
            choices[operators[node].id] += (candidate,)
        return cls(problem, build_costs(problem.graph, choices, problem.sharing, problem.axes))

    def index(self, node: int, placement: Placement) -> int:
        options = self.choices[self.problem.graph.operators[node].id]
        return next(index for index, option in enumerate(options) if option.placement == placement)

    def choice(self, plan: Plan) -> tuple[int, ...]:
        """Of a legal plan, one of those that these prices were made for."""
        places = {planned.operator: planned.placement for planned in plan.operators}
        return tuple(self.index(node, places[o.id]) for node, o in enumerate(self.problem.graph.operators))

    def placements(self, choice: Sequence[int]) -> list[Placement]:
        return [candidate.placement for candidate in self.costs.chosen(choice)]

    def times(self, choice: Sequence[int]) -> Times:
        """The simulated run; raises :class:`UserError` where the plan has an operator that does not run where it is."""
        for operator, candidate in zip(self.problem.graph.operators, self.costs.chosen(choice), strict=True):
            if not np.isfinite(candidate.ms):
                raise UserError(
                    f"operator {operator.id} ({operator.name}) does not run where the plan has it",
                    f"on {placement_words(candidate.placement)} it, or a part of it, failed when it was measured",
                    "place it elsewhere; tvm-codl measure MODEL --retry-failed tries again what failed",
                )
        return self.costs.simulate(choice)

    def predicted_ms(self, choice: Sequence[int]) -> float:
        """The corrected time of the simulated run; raises as :meth:`times` does."""
        return self.times(choice).total_ms * self.problem.factor(self.placements(choice))

    def operator_ms(self, choice: Sequence[int]) -> list[float]:
        """For each operator its time and its transfers."""
        transfers = self.costs.transfers(choice)
        return [
            float(w[value]) + sum(t.values()) for w, value, t in zip(self.costs.work, choice, transfers, strict=True)
        ]

    def restrict(self, fixed: Mapping[int, Placement]) -> dict[int, tuple[Candidate, ...]]:
        """The candidates, with infinite times for these operators (by id) elsewhere than they are said to be."""
        return {
            id: tuple(
                c if c.placement == fixed.get(id, c.placement) else replace(c, cpu_ms=np.inf, gpu_ms=np.inf)
                for c in options
            )
            for id, options in self.choices.items()
        }
