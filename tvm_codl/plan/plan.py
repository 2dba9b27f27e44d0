"""Plan: where each operator runs, as JSON that a person can read and write by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import Axis
from tvm_codl.records.record import Processor
from tvm_codl.records.settings import DEFAULT, Settings

FORMAT = 1

#: No overlap.
EXACT = (0, 0)


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """``cpu``, ``gpu``, or ``split``: the first ``at`` units of ``axis`` to the CPU, the rest to the GPU.

    ``axis`` is a name from the operator's split rule (``height``, ``channels``, ``batch``, ``rows``, ...);
    ``0 < at < extent``, in units of the output tensor's axis.  ``over`` is the halo recompute: units behind ``at`` that the
    CPU computes too, and units before it that the GPU computes too, so that neither waits for them.
    """

    on: Literal["cpu", "gpu", "split"]
    axis: str = ""
    at: int = 0
    over: tuple[int, int] = EXACT

    def __post_init__(self) -> None:
        # omit_defaults compares by identity.
        if self.over == EXACT and self.over is not EXACT:
            msgspec.structs.force_setattr(self, "over", EXACT)

    def parts(self, extent: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """The CPU's and the GPU's units of a split of ``extent`` units, end exclusive."""
        return (0, self.at + self.over[0]), (self.at - self.over[1], extent)

    def pieces(self, axes: Mapping[str, Axis]) -> list[tuple[Processor, int, int]]:
        """Each processor with a part, its first unit and the end of its units; 0 and 0 for a whole operator, without an axis."""
        if self.on != "split":
            return [(self.on, 0, 0)]
        cpu, gpu = self.parts(axes[self.axis].extent)
        return [("cpu", *cpu), ("gpu", *gpu)]


class PlannedOperator(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the plan.  Times are predicted milliseconds; ``share_ms`` is the transfer cost of its inputs."""

    operator: int
    name: str
    placement: Placement
    cpu_ms: float = 0.0
    gpu_ms: float = 0.0
    planned_ms: float = 0.0
    share_ms: float = 0.0
    chain: int = -1
    reason: str = ""


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """``operators`` has one entry for each operator of the graph, in the graph's order.

    ``predicted_ms`` is the simulated time times ``correction`` (:meth:`~tvm_codl.plan.problem.Problem.factor`), and
    ``measured_ms`` the median of runs on the device, 0 for none.  ``searched_ms`` is the sum of the costs that the search
    minimises, and ``bound_ms`` a lower bound of any plan's of the same candidates; both are 0 in a plan of no search.
    ``predicted_mj``: millijoules of a run by a power table, a model and no measurement; 0 where energy was not asked for.
    """

    model: str
    device: str
    operators: tuple[PlannedOperator, ...]
    predicted_ms: float = 0.0
    measured_ms: float = 0.0
    correction: float = 1.0
    predicted_mj: float = 0.0
    searched_ms: float = 0.0
    bound_ms: float = 0.0
    settings: Settings = DEFAULT
    format: int = FORMAT

    @property
    def placements(self) -> tuple[Placement, ...]:
        return tuple(operator.placement for operator in self.operators)


def uniform_plan(graph: OpGraph, on: Literal["cpu", "gpu"], model: str = "", device: str = "") -> Plan:
    """``cpu-only`` or ``gpu-only``: every operator whole on one processor, without times."""
    operators = tuple(
        PlannedOperator(operator.id, operator.name, Placement(on), reason=f"{on} only") for operator in graph.operators
    )
    return Plan(model, device, operators)


def single_processor(places: Iterable[str]) -> str:
    """The processor that runs all operators, by where each one is; empty where both have a part."""
    names = set(places)
    return names.pop() if len(names) == 1 and "split" not in names else ""
