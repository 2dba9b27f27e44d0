"""The Relay passes, in their order.  A new pass is one file beside this one and one line in a table here.

A network goes through four phases: :data:`SIMPLIFY` and :data:`NHWC` as it is imported (:func:`simplify`),
:data:`FUSE` before its operators are read (:func:`extract`), and :func:`partitioning` once it has a plan
(:func:`partition`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm.ir.transform import Pass
from tvm.relay import transform as stock

import tvm_codl.relay.build_facts  # noqa: F401 - whoever builds a network has prepared it
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import axes
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.verify import verify_plan
from tvm_codl.relay.annotate import AnnotateCoExecution
from tvm_codl.relay.calls import only_with
from tvm_codl.relay.extract import read_kept
from tvm_codl.relay.float16 import GpuFloat16
from tvm_codl.relay.fold import FoldConstants
from tvm_codl.relay.integer_products import IntegerProducts
from tvm_codl.relay.layout import NHWC_LAYOUTS, DropLayoutChanges
from tvm_codl.relay.merge import MergeConstants
from tvm_codl.relay.model import LoadedModel
from tvm_codl.relay.operator_ends import EndOperators
from tvm_codl.relay.partition import PartitionCoExecution
from tvm_codl.relay.plain_tensors import PlainTensors
from tvm_codl.relay.prepared import Prepared
from tvm_codl.relay.quantised import DEQUANTISE, QUANTISE
from tvm_codl.relay.rounding import PlainQuantised
from tvm_codl.relay.spans import keeping_spans
from tvm_codl.relay.stored_integers import MoveDequantise, StoreFromZero
from tvm_codl.relay.transposed import ScaleTransposed, TransposedAsConvolution

#: LLVM 22 rejects the debug information of vectors that TVM's common-subexpression elimination makes.  Kernels that check their
#: arguments take longer to compile.
CONFIG = {"tir.disable_cse_tir": True, "tir.disable_assert": True}

#: 1. Constant scales (batch normalisation) go into the weights before them, biases become one addition.  Still in the
#: file's layout.  ``ForwardFoldScaleAxis`` is left out: it also moves computed scales (squeeze-and-excitation) into the
#: weights behind them, which are then no longer constant.
SIMPLIFY: tuple[Pass, ...] = (
    stock.InferType(),
    FoldConstants,  # first: DynamicToStatic compiles a kernel for each cast of a zero point
    stock.DynamicToStatic(),
    only_with((QUANTISE, DEQUANTISE), StoreFromZero, MoveDequantise, IntegerProducts, EndOperators, PlainQuantised),
    stock.SimplifyInference(),
    stock.CanonicalizeOps(),
    MergeConstants,
    keeping_spans(stock.BackwardFoldScaleAxis()),
    MergeConstants,
    stock.DeadCodeElimination(),
)
#: 2. Two-dimensional operators work in NHWC; ``@main`` keeps its type.
NHWC: tuple[Pass, ...] = (
    stock.ConvertLayout(NHWC_LAYOUTS),
    stock.InferType(),
    FoldConstants,
    only_with(("nn.conv2d_transpose",), ScaleTransposed, TransposedAsConvolution),
    DropLayoutChanges,
)
#: 3. Each operator becomes one primitive function.  Also simplifies modules that no frontend of ours imported.
FUSE: tuple[Pass, ...] = (
    stock.InferType(),
    stock.SimplifyInference(),
    stock.FoldConstant(),
    keeping_spans(stock.BackwardFoldScaleAxis()),
    stock.FoldConstant(),
    PlainTensors,
    stock.SimplifyExpr(),
    stock.FoldConstant(),
    stock.EliminateCommonSubexpr(),
    stock.DeadCodeElimination(),
    stock.FuseOps(fuse_opt_level=2),
    stock.InferType(),
)


def partitioning(plan: Plan) -> tuple[Pass, ...]:
    """4. Each processor gets its regions."""
    half = (GpuFloat16(),) if plan.settings.gpu_float == "float16" else ()
    return (AnnotateCoExecution(plan), PartitionCoExecution(), *half)


def run(passes: Sequence[Pass], module: tvm.IRModule) -> tvm.IRModule:
    with tvm.transform.PassContext(opt_level=3, config=CONFIG):
        return tvm.transform.Sequential(list(passes))(module)


def simplify(module: tvm.IRModule) -> tvm.IRModule:
    """An imported network, its weights bound as constants, ready for inference in NHWC."""
    return run((*SIMPLIFY, *NHWC), module)


def extract(module: tvm.IRModule) -> tuple[OpGraph, dict[str, np.ndarray], tvm.IRModule]:
    """The operators of a network, its weights by key, and the prepared module that they were read from.

    ``module`` has its weights as constants and static shapes.  Raises UserError for dynamic shapes and control
    flow.
    """
    prepared = run(FUSE, module)
    graph, weights, _ = read_kept(prepared)
    return graph, weights, prepared


def prepare(model: LoadedModel) -> Prepared:
    """Simplifies the network and finds its operators."""
    graph, weights, module = extract(model.module)
    return Prepared(model, graph, weights, module, {o.id: axes(o, graph) for o in graph.operators})


def partition(prepared: Prepared, plan: Plan) -> tvm.IRModule:
    """The partitioned Relay module.  Raises :class:`UserError` for a plan that is illegal for this network."""
    verify_plan(plan, prepared.graph, prepared.axes)
    return run(partitioning(plan), prepared.module)
