"""Several plans of one network as one library: every kernel compiled once, every weight stored once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm_codl.build.dataflow import Argument, Dataflow, Value
from tvm_codl.build.kernels import Kernels


def join_flows(flows: Sequence[Dataflow]) -> Dataflow:
    """All plans' regions side by side, for one build of all kernels.  The plans share no tensor."""
    whole = Dataflow([], [], [], [])
    for flow in flows:
        first = len(whole.roots)

        def shift(value: Value, first: int = first) -> Value:
            return replace(value, root=value.root + first)

        def shift_all(arguments: list[Argument], first: int = first) -> list[Argument]:
            return [replace(a, part=replace(a.part, root=a.part.root + first)) for a in arguments]

        whole.roots.extend(flow.roots)
        for region in flow.regions:
            name, outputs = f"{region.name}_{len(whole.regions)}", [shift(v) for v in region.outputs]
            whole.regions.append(replace(region, name=name, inputs=shift_all(region.inputs), outputs=outputs))
        whole.inputs.extend((name, shift(value)) for name, value in flow.inputs)
        whole.outputs.extend(shift_all(flow.outputs))
    return whole


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
