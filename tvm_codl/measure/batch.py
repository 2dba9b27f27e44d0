"""Many probes in one library: built once, sent once, timed one by one.

Each probe is a region of its own with buffers of its own; the co-executor times it alone on its processor.  Weights
are left out of the library (a kernel's time does not depend on their values), which keeps the upload small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tvm

from tvm_codl.build.dataflow import Argument, Dataflow, Region, Root, Value
from tvm_codl.build.library import Library, build_dataflow
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.measure.probe import Probe
from tvm_codl.relay.piece import piece_function


def probe_dataflow(graph: OpGraph, weights: Mapping[str, np.ndarray], probes: Sequence[Probe]) -> Dataflow:
    """One region for each probe, in their order.

    A piece writes its result with the split axis outermost, as it would in a plan: rearranging is part of its time.
    """
    roots: list[Root] = []
    regions: list[Region] = []
    for index, probe in enumerate(probes):
        part = probe.piece(graph)
        function = piece_function(part, weights, [graph.tensors[t].dtype for t in part.operator.inputs])
        inputs = []
        for param in function.params:
            roots.append(_root(param.checked_type))
            inputs.append(Argument(Value(len(roots) - 1)))
        result = function.ret_type
        fields = list(result.fields) if isinstance(result, tvm.ir.TupleType) else [result]
        outputs = []
        for field in fields:
            roots.append(_root(field, part.output.axis if part.output is not None else -1))
            outputs.append(Value(len(roots) - 1))
        regions.append(Region(f"probe_{index}", probe.processor, str(probe.operator), function, inputs, outputs))
    return Dataflow(roots, regions, [], [], timed_alone=True)


def build_batch(
    graph: OpGraph,
    weights: Mapping[str, np.ndarray],
    probes: Sequence[Probe],
    cpu: tvm.target.Target,
    gpu: tvm.target.Target,
) -> Library:
    """The library of :func:`probe_dataflow`; region ``i`` is ``probes[i]``."""
    return build_dataflow(probe_dataflow(graph, weights, probes), cpu, gpu, keep_weights=False)


def _root(type_: tvm.ir.TensorType, outer: int = -1) -> Root:
    return Root(tuple(int(d) for d in type_.shape), str(type_.dtype), outer=outer)
