"""Which operator each kernel of a run on the phone belongs to."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.plan.plan import Plan
from tvm_codl.relay.regions import schedule
from tvm_codl.report.timeline import Event

#: TVM shortens longer names of kernels.
_SURE = 60
#: Under other names once their weights are packed.
_PACKED = {"nn_contrib_dense_pack": "nn_dense"}


def run_rows(events: Sequence[Event], plan: Plan, graph: OpGraph) -> list[int | None]:
    """For each event the place of its operator in the graph's order; None for a wait, and where it cannot be told.

    A region runs its operators in order.  One may have several kernels, of one name; two equal ones share a name too, and
    then as many kernels belong to each.
    """
    rows: list[int | None] = [None] * len(events)
    kernels: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, event in enumerate(events):
        if event.kind == "kernel":
            kernels[event.region, _short(event.name)].append(index)
    if not kernels:
        return rows
    places = {operator.id: row for row, operator in enumerate(graph.operators)}
    found = schedule(graph, {line.operator: line.placement for line in plan.operators})
    for number, region in enumerate(found.regions):
        wanted: dict[str, list[int]] = defaultdict(list)
        for task in region.tasks:
            row = places[found.tasks[task].operator]
            wanted[_called(graph.operators[row])].append(row)
        for called, own in wanted.items():
            ran = kernels[f"codl_{region.processor}_{number}", called]
            for row, indices in zip(own, _shared([(i, events[i].name) for i in ran], len(own)), strict=False):
                for index in indices:
                    rows[index] = row
    return rows


def _shared(kernels: Sequence[tuple[int, str]], count: int) -> list[list[int]]:
    """The kernels, (index, full name), of each of ``count`` operators; empty where it cannot be told."""
    runs = [[index for index, _ in run] for _, run in itertools.groupby(kernels, key=lambda kernel: kernel[1])]
    if len(runs) == count:
        return runs
    flat = [index for run in runs for index in run]
    if len(flat) % count or (len(flat) > count and len(runs) > 1):
        return []
    each = len(flat) // count
    return [flat[i : i + each] for i in range(0, len(flat), each)] if each else []


def _short(kernel: str) -> str:
    """``nn_conv2d_add`` of ``tvmgen_codl_<id>_fused_nn_conv2d_add``."""
    name = kernel.partition("_fused_")[2]
    for packed, plain in _PACKED.items():
        name = name.replace(packed, plain)
    return name[:_SURE]


def _called(operator: Operator) -> str:
    return "_".join(node.op.replace(".", "_") for node in operator.body)[:_SURE]
