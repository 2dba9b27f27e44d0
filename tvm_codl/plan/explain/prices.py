"""Prices: what every placement of every operator of a network costs, and what a plan of them would take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tvm_codl.cost.transfers import TransferCost
from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.candidates import Axes, Candidate
from tvm_codl.plan.costs import Costs, replayed, tables
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.reasons import placement_words
from tvm_codl.plan.simulate import Times
from tvm_codl.records.record import Processor


@dataclass(frozen=True)
class Prices:
    """``choices`` are the search's candidates and whatever else was asked for; ``costs`` are their tables; ``factor`` is
    :meth:`Problem.factor <tvm_codl.plan.problem.Problem.factor>`.

    A *choice* is the number of a candidate for each operator, in the graph's order.
    """

    graph: OpGraph
    axes: Axes
    sharing: TransferCost
    choices: Mapping[int, tuple[Candidate, ...]]
    costs: Costs
    factor: Callable[[Sequence[Placement]], float]

    @classmethod
    def of(cls, problem: Problem, plans: Sequence[Plan] = (), more: Mapping[int, Placement] | None = None) -> Prices:
        """The prices of a problem's candidates, and of the placements in ``plans`` and ``more`` (by operator id), all
        legal: those that are no candidates get predicted times."""
        graph, axes = problem.graph, problem.axes
        choices = dict(problem.options)
        wanted = [(o.operator, o.placement) for plan in plans for o in plan.operators]
        places = {operator.id: node for node, operator in enumerate(graph.operators)}
        wanted += (more or {}).items()
        missing = [
            (places[id], placement)
            for id, placement in dict.fromkeys(wanted)
            if all(option.placement != placement for option in choices[id])
        ]
        for (node, _), candidate in zip(missing, problem.split(missing), strict=True):
            choices[graph.operators[node].id] += (candidate,)
        return cls(graph, axes, problem.sharing, choices, tables(graph, choices, problem.sharing, axes), problem.factor)

    def index(self, node: int, placement: Placement) -> int:
        options = self.choices[self.graph.operators[node].id]
        return next(index for index, option in enumerate(options) if option.placement == placement)

    def choice(self, plan: Plan) -> tuple[int, ...]:
        """Of a legal plan, one of those that these prices were made for."""
        places = {planned.operator: planned.placement for planned in plan.operators}
        return tuple(self.index(node, places[operator.id]) for node, operator in enumerate(self.graph.operators))

    def placement(self, node: int, index: int) -> Placement:
        return self.choices[self.graph.operators[node].id][index].placement

    def times(self, choice: Sequence[int]) -> Times:
        """The replay of a plan; raises :class:`UserError` where it has an operator that does not run where it is."""
        for node, index in enumerate(choice):
            operator = self.graph.operators[node]
            if not np.isfinite(self.choices[operator.id][index].ms):
                raise UserError(
                    f"operator {operator.id} ({operator.name}) does not run where the plan has it",
                    f"on {placement_words(self.placement(node, index))} it, or a part of it, failed when it was measured",
                    "place it elsewhere; tvm-codl measure MODEL --retry-failed tries again what failed",
                )
        return replayed(self.graph, self.choices, self.sharing, self.costs, choice)

    def predicted_ms(self, choice: Sequence[int]) -> float:
        """The replay of a plan, corrected by what such plans took before; raises as :meth:`times` does."""
        return self.times(choice).total_ms * self.factor([self.placement(*one) for one in enumerate(choice)])

    def shares(self, choice: Sequence[int]) -> list[dict[int, float]]:
        """For each operator what sharing costs in ms, by the id of the operator that made the input.

        -1 stands for the network's inputs and outputs.  What costs nothing is left out.
        """
        found: list[dict[int, float]] = [{} for _ in choice]
        for node, (table, index) in enumerate(zip(self.costs.host, choice, strict=True)):
            if table[index] > 0:
                found[node][-1] = float(table[index])
        for (a, b), table in self.costs.edges.items():
            if (ms := float(table[choice[a], choice[b]])) > 0:
                found[b][self.graph.operators[a].id] = ms
        return found

    def only(self, fixed: Mapping[int, Placement]) -> dict[int, tuple[Candidate, ...]]:
        """The candidates for a search in which these operators (by id) may only be where they are said to be.

        The first two stay the whole ones, as the search wants them, and run nowhere if they are not asked for.
        """
        kept = dict(self.choices)
        for id, placement in fixed.items():
            cpu, gpu = (
                whole if whole.placement == placement else msgspec.structs.replace(whole, **{field: np.inf})
                for whole, field in zip(self.choices[id][:2], ("cpu_ms", "gpu_ms"), strict=True)
            )
            kept[id] = (cpu, gpu, *(c for c in self.choices[id][2:] if c.placement == placement))
        return kept


def parts(placement: Placement, axes: Axes, id: int) -> list[tuple[Processor, str, int, int]]:
    """(processor, axis, lo, hi) of each processor's part of an operator; the axis is empty for the whole of it."""
    if placement.on != "split":
        return [(placement.on, "", 0, 0)]
    cpu, gpu = placement.parts(axes[id][placement.axis].extent)
    return [("cpu", placement.axis, *cpu), ("gpu", placement.axis, *gpu)]
