"""Plan: where each operator runs, as JSON that a person can read and write by hand."""

from __future__ import annotations

from typing import Literal

import msgspec

from tvm_codl.records.settings import DEFAULT, Settings

FORMAT = 1

#: No overlap.
EXACT = (0, 0)


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """``cpu``, ``gpu``, or ``split``: the first ``at`` units of ``axis`` to the CPU, the rest to the GPU.

    ``axis`` is a name from the operator's split rule (``height``, ``channels``, ``batch``, ``rows``, ...);
    ``0 < at < extent``, in units of the output tensor's axis.  ``over``: units behind ``at`` that the CPU makes too, and
    units before it that the GPU makes too.  What both make, neither has to wait for.
    """

    on: Literal["cpu", "gpu", "split"]
    axis: str = ""
    at: int = 0
    over: tuple[int, int] = EXACT

    def __post_init__(self) -> None:
        # A field is left out of the JSON where it is the default itself.
        if self.over == EXACT and self.over is not EXACT:
            msgspec.structs.force_setattr(self, "over", EXACT)

    def parts(self, extent: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """The CPU's units and the GPU's, of a split of ``extent`` units: first one, and the one behind the last."""
        return (0, self.at + self.over[0]), (self.at - self.over[1], extent)


class PlannedOperator(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the plan.  Times are predicted milliseconds; ``share_ms`` is what sharing costs on its inputs."""

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

    ``searched_ms`` is the plan's time under the costs that the search minimises, and no plan of the same candidates has
    one below ``bound_ms``; both are 0 in a plan that no search made.
    ``predicted_ms`` is the plan's replay times ``correction``: how much longer than their replays this device's earlier plans
    took that share a network, and how much longer than its operators this one takes on each processor alone, where that was
    measured (of a plan of one processor these are runs of itself).  ``measured_ms`` is the median of runs on the device, 0 for none.
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
