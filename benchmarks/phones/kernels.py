"""Phone kernels: TFLite's kernels on a phone's GPU, described as the planner's learner wants them.

Nothing here is known only after the operator has run; no time of any kind is among the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

import numpy as np

from benchmarks.phones.delegate import Gpu, Schedule, schedule
from benchmarks.phones.operators import CLASSES, PhoneOperator
from tvm_codl.cost.evaluation.baselines import Amounts
from tvm_codl.cost.features import Described

_HALF = 2
#: Threads that a compute unit may hold at once: latency has a step where another round of work-groups begins.
_RESIDENT = (512, 1024, 2048)
_FUSED = ("relu", "add", "sigmoid", "hard_swish", "mul")


def describe(operators: Sequence[PhoneOperator], gpu: Gpu) -> tuple[Described, Amounts]:
    """For the learner and for the baselines, whose units in series are the delegate's waves."""
    terms, columns, amounts, kinds = [], [], [], []
    for op in operators:
        plan = schedule(op, gpu)
        own = _terms(op, plan, gpu)
        terms.append(list(own.values()))
        columns.append(_columns(op, plan, gpu, own))
        sizes = (op.out_hw, op.out_hw, op.out_channels, op.in_channels, op.kernel, op.stride)
        amounts.append((flops(op), sum(moved_bytes(op)), *sizes, own["waves_of_unit"], plan.steps))
        kinds.append(f"{op.op_class} {'winograd' if plan.winograd else prod(plan.block)}")
    work = np.array(terms, dtype=np.float64)
    start = 1e-3 / (np.median(work, axis=0) + 0.1 * np.mean(work, axis=0) + 1e-9)
    tiled = np.ones(len(work), dtype=bool)
    described = Described(np.array(columns, dtype=np.float64), work, start, np.array(kinds), tiled)
    return described, Amounts(*np.array(amounts, dtype=np.float64).T)


def moved_bytes(op: PhoneOperator) -> tuple[int, int, int]:
    """(input, output, weights) in half precision, channels in slices of 4."""
    depth, slices = -(-op.in_channels // 4), -(-op.out_channels // 4)
    weights = 0
    if op.op in ("conv_2d", "conv_2d_group", "fully_connected"):
        weights = op.kernel**2 * -(-depth // op.groups) * slices * 16 * _HALF
    elif op.op == "depthwise_conv_2d":
        weights = op.kernel**2 * slices * 4 * _HALF
    return op.in_hw**2 * depth * 4 * _HALF, op.out_hw**2 * slices * 4 * _HALF, weights


def flops(op: PhoneOperator) -> float:
    """Two for a multiplication with its addition; one an element for what only moves or reduces."""
    outputs = float(op.out_hw**2 * op.out_channels)
    if op.op in ("conv_2d", "conv_2d_group", "fully_connected"):
        return 2.0 * outputs * op.kernel**2 * op.in_channels / op.groups
    if op.op == "depthwise_conv_2d":
        return 2.0 * outputs * op.kernel**2
    if op.op == "mean":
        return float(op.in_hw**2 * op.in_channels)
    return outputs * (op.kernel**2 if op.op.endswith("pool_2d") else 1)


def _terms(op: PhoneOperator, plan: Schedule, gpu: Gpu) -> dict[str, float]:
    """What the prior adds up.  Work counts a thread's steps, times the results of a step; reads count values."""
    group, work = prod(plan.group), prod(plan.block) * plan.steps
    groups_of_unit, waves = ceil(plan.groups / gpu.compute_units), ceil(group / gpu.wave)
    bytes_in, bytes_out, bytes_weights = moved_bytes(op)
    resident = {size: max(1, size // (waves * gpu.wave)) for size in _RESIDENT}
    rounds = {size: ceil(plan.groups / (gpu.compute_units * count)) * count for size, count in resident.items()}
    return {
        "start": 1.0,
        "work_of_unit": groups_of_unit * waves * work,
        "padded_work": plan.groups * group * work,
        "work": plan.threads * work,
        "waves_of_unit": groups_of_unit * waves,
        "groups_of_unit": groups_of_unit,
        "bytes_in": bytes_in,
        "bytes_out": bytes_out,
        "bytes_weights": bytes_weights,
        "reads_weights": plan.threads * plan.steps * 4 * plan.block[2],
        "reads_input": plan.threads * plan.steps * plan.block[0] * plan.block[1],
        "steps": plan.steps,
        "work_of_thread": work,
        "flops": flops(op),
        **{f"work_of_rounds_{size}": count * waves * work for size, count in rounds.items()},
        **{f"work_of_waves_{size}": plan.groups * ceil(group / size) * work for size in (16, 64, 128)},
    }


def _columns(op: PhoneOperator, plan: Schedule, gpu: Gpu, terms: dict[str, float]) -> list[float]:
    """Amounts as logarithms, then sizes, how full the last tile, wave and round are, and what the operator is."""
    depth, slices = -(-op.in_channels // 4), -(-op.out_channels // 4)
    group, moved = prod(plan.group), sum(moved_bytes(op))
    sizes = (op.in_hw, op.in_channels, op.out_hw, op.out_channels, *plan.grid, plan.threads, plan.groups)
    logs = np.log2(1.0 + np.array([*terms.values(), *sizes, moved, terms["work"] / moved]))
    fills = (
        plan.groups / (terms["groups_of_unit"] * gpu.compute_units),
        plan.threads / (plan.groups * group),
        group / (ceil(group / gpu.wave) * gpu.wave),
        op.in_channels / (4 * depth),
        op.out_channels / (4 * slices),
    )
    shape = (op.kernel, op.stride, op.groups, *plan.block, *plan.group, prod(plan.block), group)
    odd = (op.out_hw % 2, slices % 4, depth % 4)
    kinds = (plan.winograd, *(op.op == name for name in CLASSES), *(op.fused.count(name) for name in _FUSED))
    return [*logs.tolist(), *fills, *shape, *odd, len(op.fused), *kinds]
