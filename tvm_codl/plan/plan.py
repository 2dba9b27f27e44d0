"""Plan: where each operator runs, as JSON that a person can read and write by hand."""

from __future__ import annotations

from typing import Literal

import msgspec

FORMAT = 1


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """``cpu``, ``gpu``, or ``split``: the first ``at`` units of ``axis`` to the CPU, the rest to the GPU.

    ``axis`` is a name from the operator's split rule (``height``, ``channels``, ``batch``, ``rows``, ...);
    ``0 < at < extent``, in units of the output tensor's axis.
    """

    on: Literal["cpu", "gpu", "split"]
    axis: str = ""
    at: int = 0


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
    """``operators`` has one entry for each operator of the graph, in the graph's order."""

    model: str
    device: str
    operators: tuple[PlannedOperator, ...]
    predicted_ms: float = 0.0
    format: int = FORMAT
