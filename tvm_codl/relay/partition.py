"""The pass that turns an annotated module into regions for the two processors."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relay

from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.slab import Need, Slab
from tvm_codl.relay.annotate import CHAIN, PLACEMENT, from_text
from tvm_codl.relay.extract import read
from tvm_codl.relay.piece import WeightSlices, piece_body
from tvm_codl.relay.regions import Region, Schedule, Source, schedule, source_shape
from tvm_codl.relay.walk import with_types

PROCESSOR, OPERATORS = "codl.processor", "codl.operators"

#: A task, a tensor that it makes, and the part of its result (None: all of it).
_Result = tuple[int, int, Need]


def PartitionCoExecution() -> tvm.transform.Pass:
    """Rewrites an annotated module so that it says which processor runs what.

    ``@main`` calls the regions ``@codl_cpu_K`` and ``@codl_gpu_K``, numbered in an order in which they can run, on
    network inputs, results of other regions, ``strided_slice``s of them along one axis and ``concatenate``s of a CPU
    and a GPU piece; where these overlap, a region gives the share of its piece that is joined as a result of its own.
    A region's attributes are ``codl.processor``, ``codl.chain`` and ``codl.operators`` (ids joined by commas).  It holds
    its weights, already sliced.  The result computes what the original does.
    """

    def partition(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        mod = with_types(mod)
        graph, weights, calls = read(mod)
        placements, chains = {}, {}
        for operator in graph.operators:
            call = calls.get(operator.id)  # None: a constant that is an output of the network
            attrs = {} if call is None else call.op.attrs
            if call is not None and PLACEMENT not in attrs:
                raise UserError(
                    f"{operator.name} has no placement",
                    next="apply AnnotateCoExecution(plan) before PartitionCoExecution()",
                )
            placements[operator.id] = from_text(str(attrs[PLACEMENT]) if call is not None else "cpu")
            chains[operator.id] = int(attrs[CHAIN]) if call is not None else -1
        writer = _Writer(graph, weights, schedule(graph, placements), chains, mod["main"])
        return relay.transform.InferType()(writer.module())

    return tvm.transform.module_pass(partition, opt_level=0, name="PartitionCoExecution")


class _Writer:
    """Writes the partitioned module."""

    def __init__(
        self,
        graph: OpGraph,
        weights: dict[str, np.ndarray],
        plan: Schedule,
        chains: dict[int, int],
        main: relay.Function,
    ) -> None:
        self.graph, self.plan, self.chains, self.main = graph, plan, chains, main
        self.slices = WeightSlices(weights)
        self.region_of = {task: index for index, region in enumerate(plan.regions) for task in region.tasks}
        self.variables = {
            tensor: relay.var(param.name_hint, param.checked_type)
            for tensor, param in zip(graph.inputs, main.params, strict=True)
        }
        self.results: dict[_Result, relay.Expr] = {}  # in @main
        self.parts: dict[tuple[int, int | None, Need], relay.Expr] = {}
        self.functions: dict[relay.GlobalVar, relay.Function] = {}

    def module(self) -> tvm.IRModule:
        outside = self._read_outside()
        for index, region in enumerate(self.plan.regions):
            self._region(index, region, outside)
        outputs = [self._in_main(Source(tensor, None, *self._origin(tensor))) for tensor in self.graph.outputs]
        single = len(outputs) == 1 and not isinstance(self.main.ret_type, relay.TupleType)
        body = outputs[0] if single else _shaped_as(self.main.ret_type, outputs)
        params = [self.variables[tensor] for tensor in self.graph.inputs]
        self.functions[relay.GlobalVar("main")] = relay.Function(params, body, self.main.ret_type)
        return tvm.IRModule(self.functions)

    def _origin(self, tensor: int) -> tuple[int | None, bool]:
        makers = self.plan.makers.get(tensor, ())
        return (makers[0], False) if len(makers) == 1 else (None, bool(makers))

    def _shares(self, tensor: int) -> list[_Result]:
        """The parts of a tensor, from the tasks that make it."""
        makers = self.plan.makers.get(tensor, ())
        return [(maker, tensor, self.plan.tasks[maker].share) for maker in makers]

    def _read_outside(self) -> set[_Result]:
        """Results that another region or the network's end reads."""
        results = {share for tensor in self.graph.outputs for share in self._shares(tensor)}
        for task in self.plan.tasks:
            for feed in task.feeds:
                alone: list[_Result] = [] if feed.task is None else [(feed.task, feed.tensor, None)]
                for result in self._shares(feed.tensor) if feed.joined else alone:
                    if self.region_of[result[0]] != self.region_of[task.id]:
                        results.add(result)
        return results

    def _region(self, index: int, region: Region, outside: set[_Result]) -> None:
        params: dict[Source, relay.Var] = {}
        inside: dict[tuple[int, int], relay.Expr] = {}
        cuts: dict[Source, relay.Expr] = {}

        def feed(source: Source) -> relay.Expr:
            if source.task is not None and self.region_of[source.task] == index:
                if source not in cuts:  # whatever FuseOps would choose, kernels end where the graph's operators do
                    made = relay.annotation.stop_fusion(inside[source.task, source.tensor])
                    cuts[source] = _cut(made, source.part)
                return cuts[source]
            if source not in params:
                shape = source_shape(source, self.graph, self.plan.tasks)
                params[source] = relay.var(
                    f"p{len(params)}", shape=shape, dtype=self.graph.tensors[source.tensor].dtype
                )
            return params[source]

        for id in region.tasks:
            task = self.plan.tasks[id]
            results = piece_body(task.piece, [feed(source) for source in task.feeds], self.slices)
            for tensor, result in zip(task.piece.operator.outputs, results, strict=True):
                inside[id, tensor] = result
        # Where pieces overlap, one may be read whole, as its share of the join, or both.
        given = [
            (id, tensor, part)
            for id, tensor in inside
            for part in dict.fromkeys((None, self.plan.tasks[id].share))
            if (id, tensor, part) in outside
        ]
        bodies = [_cut(inside[id, tensor], part) for id, tensor, part in given]
        body = bodies[0] if len(given) == 1 else relay.Tuple(bodies)
        name = f"codl_{region.processor}_{index}"
        function = self._attributed(relay.Function(list(params.values()), body), name, region)
        variable = relay.GlobalVar(name, function.checked_type)
        self.functions[variable] = function
        call = relay.Call(variable, [self._in_main(source) for source in params])
        for position, key in enumerate(given):
            self.results[key] = call if len(given) == 1 else relay.TupleGetItem(call, position)

    def _attributed(self, function: relay.Function, name: str, region: Region) -> relay.Function:
        typed = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
        operators = [self.plan.tasks[id].operator for id in region.tasks]
        return typed.with_attr(
            {
                "global_symbol": name,
                PROCESSOR: region.processor,
                CHAIN: tvm.tir.IntImm("int32", self.chains[operators[0]]),
                OPERATORS: ",".join(str(id) for id in operators),
                # The graph executor has no calls between functions: stock Relay inlines these.
                "Inline": tvm.tir.IntImm("int32", 1),
            }
        )

    def _in_main(self, source: Source) -> relay.Expr:
        """The expression in ``@main`` for a source."""
        key = (source.tensor, source.task, source.part)
        if key in self.parts:
            return self.parts[key]
        if source.part is not None:
            made = _cut(self._in_main(Source(source.tensor, None, source.task, source.joined)), source.part)
        elif source.task is not None:
            made = self.results[source.task, source.tensor, None]
        elif source.joined:
            makers = self.plan.makers[source.tensor]
            output = self.plan.tasks[makers[0]].piece.output
            assert output is not None
            made = relay.concatenate([self.results[share] for share in self._shares(source.tensor)], axis=output.axis)
        else:
            made = self.variables[source.tensor]
        self.parts[key] = made
        return made


def _cut(expr: relay.Expr, part: Slab | None) -> relay.Expr:
    if part is None:
        return expr
    return relay.strided_slice(expr, [part.lo], [part.hi], strides=[1], axes=[part.axis])


def _shaped_as(kind: relay.Type, flat: list[relay.Expr]) -> relay.Expr:
    """Expressions put back into the (possibly nested) tuple that the network returns."""
    remaining = iter(flat)

    def build(kind: relay.Type) -> relay.Expr:
        if isinstance(kind, relay.TupleType):
            return relay.Tuple([build(field) for field in kind.fields])
        return next(remaining)

    return build(kind)
