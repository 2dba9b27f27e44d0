"""Which kernels of ours a Relay module asks configurations for, found by lowering it: no code is made."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay
from tvm.relay.backend.graph_executor_codegen import GraphExecutorCodegen

from tvm_codl.kernels.dispatch import scheduled

PASS_CONFIG = {"tir.disable_cse_tir": True}
#: Folds scales computed at run time (squeeze-and-excitation) into weights, which are then no longer constant.
DISABLED_PASSES = ["ForwardFoldScaleAxis"]


def workloads(module: tvm.IRModule, target: tvm.target.Target) -> list[tuple[Any, ...]]:
    """AutoTVM workloads in the order in which they are asked for."""
    target = target if target.host else target.with_host(target)
    with (
        scheduled(shipped=False) as context,
        tvm.transform.PassContext(opt_level=3, config=PASS_CONFIG, disabled_pass=DISABLED_PASSES),
    ):
        optimized, _ = relay.optimize(module, target)
        GraphExecutorCodegen(None, target).codegen(optimized, optimized["main"])
    return [workload for _, workload in context.seen]
