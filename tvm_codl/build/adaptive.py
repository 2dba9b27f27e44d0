"""Several plans of one network as one library: every kernel compiled once, every weight stored once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm_codl.build.dataflow import Dataflow, Region, Root, Value
from tvm_codl.build.kernels import Kernels


def join_flows(flows: Sequence[Dataflow]) -> Dataflow:
    """All plans' regions side by side, for one build of all kernels.  The plans share no tensor; the result has no ports."""
    roots: list[Root] = []
    regions: list[Region] = []
    for flow in flows:
        for region in flow.regions:
            inputs = [replace(argument, part=_shift(argument.part, len(roots))) for argument in region.inputs]
            outputs = [_shift(value, len(roots)) for value in region.outputs]
            regions.append(replace(region, inputs=inputs, outputs=outputs))
        roots += flow.roots
    return Dataflow(roots, regions, [], [])


def _shift(value: Value, first: int) -> Value:
    return replace(value, root=value.root + first)


def split_kernels(flows: Sequence[Dataflow], kernels: dict[str, Kernels]) -> list[dict[str, Kernels]]:
    """The kernels compiled for :func:`join_flows`, by plan: its regions, renumbered, and the weights that they read."""
    plans: list[dict[str, Kernels]] = []
    first = 0
    for flow in flows:
        end = first + len(flow.regions)
        plan: dict[str, Kernels] = {}
        for processor, built in kernels.items():
            regions = [replace(r, region=r.region - first) for r in built.regions if first <= r.region < end]
            if regions:
                read = {o.name for r in regions for c in r.calls for o in c.operands if o.kind == "weight"}
                weights = {name: value for name, value in built.weights.items() if name in read}
                plan[processor] = replace(built, weights=weights, regions=regions)
        plans.append(plan)
        first = end
    return plans
