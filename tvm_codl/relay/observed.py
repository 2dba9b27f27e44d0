"""A network whose operators can all be seen: each operator's result as an output, and each operator by itself."""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import relay

from tvm_codl.graph.split import whole
from tvm_codl.relay.extract import read
from tvm_codl.relay.piece import WeightSlices, piece_body
from tvm_codl.relay.prepared import Prepared


def observe(prepared: Prepared) -> Prepared:
    """The network with every tensor that an operator makes as an output, by its name in the graph.

    Operators keep their numbers.  One that returns a constant is left out.
    """
    main = prepared.module["main"]
    _, _, calls = read(prepared.module)
    body = relay.Tuple([calls[number] for number in sorted(calls)])
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(main.params, body)))
    graph, weights, _ = read(module)
    names = tuple(graph.tensors[tensor].name for tensor in graph.outputs)
    model = replace(prepared.model, module=module, outputs=names)
    return replace(prepared, model=model, graph=graph, weights=weights, module=module)


def beside(observed: Prepared) -> tvm.IRModule:
    """What :func:`observe`'s outputs must be, twice: from the network's inputs alone, then each operator by itself, from
    the values that the inputs ``tensorN`` give of the tensors that it reads."""
    graph, slices = observed.graph, WeightSlices(observed.weights)
    params = {
        tensor: relay.var(f"tensor{tensor}", relay.TensorType(graph.tensors[tensor].shape, graph.tensors[tensor].dtype))
        for tensor in (*graph.inputs, *graph.outputs)
    }
    chained: dict[int, relay.Expr] = {tensor: params[tensor] for tensor in graph.inputs}
    alone: dict[int, relay.Expr] = {}
    for operator in graph.operators:
        for values, results in ((chained, chained), (params, alone)):
            made = piece_body(whole(operator, graph), [values[tensor] for tensor in operator.inputs], slices)
            results.update(zip(operator.outputs, made, strict=True))
    body = relay.Tuple([results[tensor] for results in (chained, alone) for tensor in graph.outputs])
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(list(params.values()), body)))
