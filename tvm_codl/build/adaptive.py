"""Several plans of one network as one library: every kernel compiled once, every weight stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tvm_codl.build.dataflow import Argument, Dataflow, Region, Root, Value
from tvm_codl.build.kernels import CompiledRegion, Kernels


def joined(flows: Sequence[Dataflow]) -> Dataflow:
    """All plans' regions side by side, so that one build makes their kernels.  They share no tensor."""
    roots: list[Root] = []
    regions: list[Region] = []
    inputs: list[tuple[str, Value]] = []
    outputs: list[Argument] = []
    for flow in flows:
        first = len(roots)

        def moved(value: Value, first: int = first) -> Value:
            return replace(value, root=value.root + first)

        def argument(one: Argument, first: int = first) -> Argument:
            return replace(one, part=replace(one.part, root=one.part.root + first))

        roots += flow.roots
        regions += [
            Region(
                f"{r.name}_{len(regions) + i}",
                r.processor,
                r.operators,
                r.function,
                [argument(a) for a in r.inputs],
                [moved(v) for v in r.outputs],
            )
            for i, r in enumerate(flow.regions)
        ]
        inputs += [(name, moved(value)) for name, value in flow.inputs]
        outputs += [argument(a) for a in flow.outputs]
    return Dataflow(roots, regions, inputs, outputs)


def parted(flows: Sequence[Dataflow], kernels: dict[str, Kernels]) -> list[dict[str, Kernels]]:
    """What was compiled for :func:`joined`, by plan: its regions under its own numbers, and the weights that they read.

    Weights of equal content have one name, in all plans.
    """
    names = {processor: _one_name_each(built.weights) for processor, built in kernels.items()}
    found: list[dict[str, Kernels]] = []
    first = 0
    for flow in flows:
        end = first + len(flow.regions)
        part: dict[str, Kernels] = {}
        for processor, built in kernels.items():
            regions = [
                _renamed(r, r.region - first, names[processor]) for r in built.regions if first <= r.region < end
            ]
            if not regions:
                continue
            read = {o.name for r in regions for c in r.calls for o in c.operands if o.kind == "weight"}
            weights = {name: value for name, value in built.weights.items() if name in read}
            part[processor] = Kernels(built.library, weights, regions, built.launches)
        found.append(part)
        first = end
    return found


def _renamed(compiled: CompiledRegion, number: int, names: dict[str, str]) -> CompiledRegion:
    calls = [
        replace(
            call,
            operands=[replace(o, name=names[o.name]) if o.kind == "weight" else o for o in call.operands],
        )
        for call in compiled.calls
    ]
    return replace(compiled, region=number, calls=calls)


def _one_name_each(weights: dict[str, np.ndarray]) -> dict[str, str]:
    """By name, the first name of a weight that holds the same."""
    seen: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    same = {}
    for name, value in weights.items():
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()
        same[name] = seen.setdefault((str(value.dtype), value.shape, content), name)
    return same
