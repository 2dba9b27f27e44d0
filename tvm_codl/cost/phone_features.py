"""Phone features: an operator of a TFLite network and the delegate's schedule for it, as a row of numbers.

Amounts are base-2 logarithms.  Every column is known before the operator has run; no time of any kind is among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from tvm_codl.cost.delegate import GPUS, Gpu, schedule
from tvm_codl.cost.evaluation.baselines import Amounts
from tvm_codl.cost.phone_rows import PhoneOperator
from tvm_codl.errors import UserError

Rows = NDArray[np.float64]

_HALF = 2
#: Threads that a compute unit may hold at once: where another round of work-groups begins, latency has a step.
_RESIDENT = (512, 1024, 2048)
#: The column along which log-time runs to first order, and how steeply: the serial work of one compute unit.
WORK = "work_of_unit"
WORK_SLOPE = 0.7 * math.log(2.0)


def phone_features(operators: Sequence[PhoneOperator]) -> tuple[Rows, tuple[str, ...]]:
    """(rows of shape (operators, columns), the columns' names).

    Raises :class:`UserError` for a device whose GPU is not known.
    """
    found = []
    for op in operators:
        gpu = GPUS.get(op.device)
        if gpu is None:
            raise UserError(f"the GPU of {op.device!r} is not known", f"known: {', '.join(GPUS)}")
        found.append(_columns(op, gpu))
    if not found:
        return np.zeros((0, 0)), ()
    return np.array([list(columns.values()) for columns in found], dtype=np.float64), tuple(found[0])


def moved_bytes(op: PhoneOperator) -> tuple[int, int, int]:
    """(input, output, weights) in half precision, channels in slices of 4."""
    depth, slices = -(-op.in_channels // 4), -(-op.out_channels // 4)
    weights = 0
    if op.op in ("conv_2d", "conv_2d_group", "fully_connected"):
        weights = max(op.kernel, 1) ** 2 * (-(-depth // max(op.groups, 1))) * slices * 16 * _HALF
    elif op.op == "depthwise_conv_2d":
        weights = op.kernel**2 * slices * 4 * _HALF
    return op.in_hw**2 * depth * 4 * _HALF, op.out_hw**2 * slices * 4 * _HALF, weights


def flops(op: PhoneOperator) -> float:
    """Two for a multiplication with its addition; one an element for what only moves or reduces."""
    outputs = float(op.out_hw**2 * op.out_channels)
    if op.op in ("conv_2d", "conv_2d_group", "fully_connected"):
        return 2.0 * outputs * max(op.kernel, 1) ** 2 * op.in_channels / max(op.groups, 1)
    if op.op == "depthwise_conv_2d":
        return 2.0 * outputs * op.kernel**2
    if op.op == "mean":
        return float(op.in_hw**2 * op.in_channels)
    return outputs * (max(op.kernel, 1) ** 2 if op.op.endswith("pool_2d") else 1)


def _columns(op: PhoneOperator, gpu: Gpu) -> dict[str, float]:
    plan = schedule(op, gpu)
    depth, slices = -(-op.in_channels // 4), -(-op.out_channels // 4)
    block, group = prod(plan.block), prod(plan.group)
    work = block * plan.steps
    groups_of_unit = ceil(plan.groups / gpu.compute_units)
    bytes_in, bytes_out, bytes_weights = moved_bytes(op)
    total = bytes_in + bytes_out + bytes_weights
    pixels = plan.block[0] * plan.block[1]
    waves_of_group = ceil(group / gpu.wave)
    resident = {size: max(1, size // (waves_of_group * gpu.wave)) for size in _RESIDENT}
    rounds = {size: ceil(plan.groups / (gpu.compute_units * count)) for size, count in resident.items()}
    waves = {size: plan.groups * ceil(group / size) for size in (16, 64, 128)}
    logs = {
        "in_hw": op.in_hw,
        "in_channels": op.in_channels,
        "out_hw": op.out_hw,
        "out_channels": op.out_channels,
        "flops": flops(op),
        "depth": depth,
        "slices": slices,
        "grid_x": plan.grid[0],
        "grid_y": plan.grid[1],
        "grid_z": plan.grid[2],
        "threads": plan.threads,
        "groups": plan.groups,
        "steps": plan.steps,
        "groups_of_unit": groups_of_unit,
        "work": plan.threads * work,
        "padded_work": plan.groups * group * work,
        "work_of_groups": groups_of_unit * group * work,
        "bytes_in": bytes_in,
        "bytes_out": bytes_out,
        "bytes_weights": bytes_weights,
        "bytes": total,
        "intensity": plan.threads * work / max(total, 1),
        "reads": plan.threads * plan.steps * (pixels + 4 * plan.block[2]),
        "reads_weights": plan.threads * plan.steps * 4 * plan.block[2],
        "reads_input": plan.threads * plan.steps * pixels,
        "reads_a_result": (pixels + 4 * plan.block[2]) / block,
        "work_of_thread": work,
        "waves_of_unit": groups_of_unit * ceil(group / gpu.wave),
        WORK: groups_of_unit * ceil(group / gpu.wave) * work,
        "few_threads": plan.threads * work / max(1, min(plan.threads, gpu.compute_units * gpu.wave * 8)),
        **{f"waves_{size}": count for size, count in waves.items()},
        **{f"work_of_waves_{size}": count * work for size, count in waves.items()},
    }
    for size, count in resident.items():
        logs[f"work_of_rounds_{size}"] = rounds[size] * count * waves_of_group * work
    plain = {
        "kernel": op.kernel,
        "stride": op.stride,
        "conv_groups": math.log2(max(op.groups, 1)),
        "fill_in": op.in_channels / (4 * depth),
        "fill_out": op.out_channels / (4 * slices),
        "block_x": plan.block[0],
        "block_y": plan.block[1],
        "block_z": plan.block[2],
        "block": block,
        "group_x": plan.group[0],
        "group_y": plan.group[1],
        "group_z": plan.group[2],
        "group": group,
        "fill_last_round": plan.groups / (groups_of_unit * gpu.compute_units),
        "fill_groups": plan.threads / (plan.groups * group),
        "fill_waves": group / (ceil(group / gpu.wave) * gpu.wave),
        **{
            f"fill_rounds_{size}": plan.groups / (rounds[size] * gpu.compute_units * count)
            for size, count in resident.items()
        },
        "winograd": plan.winograd,
        "vector": op.in_hw == 1 and op.out_hw == 1,
        "max_pool": op.op == "max_pool_2d",
        **{f"fused_{name}": op.fused.count(name) for name in ("relu", "add", "sigmoid", "hard_swish", "mul")},
        "fused": len(op.fused),
        "odd_hw": op.out_hw % 2,
        "slices_mod_2": slices % 2,
        "slices_mod_4": slices % 4,
        "depth_mod_2": depth % 2,
        "depth_mod_4": depth % 4,
    }
    return {name: math.log2(max(value, 2.0**-20)) for name, value in logs.items()} | {
        name: float(value) for name, value in plain.items()
    }


def amounts(operators: Sequence[PhoneOperator]) -> Amounts:
    """What the baselines ask, with the delegate's own warps as the units in series."""
    found = []
    for op in operators:
        gpu = GPUS[op.device]
        plan = schedule(op, gpu)
        units = ceil(plan.groups / gpu.compute_units) * ceil(prod(plan.group) / gpu.wave)
        sizes = (op.out_hw, op.out_hw, op.out_channels, op.in_channels, max(op.kernel, 1), max(op.stride, 1))
        found.append((flops(op), sum(moved_bytes(op)), *sizes, units, plan.steps))
    columns = np.array(found, dtype=np.float64).reshape(len(found), 10).T
    return Amounts(*columns)
