"""AutoTVM tasks for tests: a real convolution of ours, and a template whose configurations misbehave as they are told."""

from __future__ import annotations

import os
import time
from typing import Any

from tvm import autotvm, te, tir

from tvm_codl.kernels.target import vector_lanes
from tvm_codl.kernels.tuner.trials import legal

DEEDS = ("work", "raise", "crash", "hang", "abort on the phone")


def conv_task(target: Any, extent: int = 14, channels: int = 16, out: int = 32, window: int = 3) -> Any:
    """A convolution that takes microseconds; its output is as large as its input."""
    lanes = vector_lanes(target)
    data, kernel = (
        ("TENSOR", (1, extent, extent, channels)),
        ("TENSOR", (out // lanes, window, window, channels, lanes)),
    )
    pads = (window // 2,) * 4
    arguments = ((*data, "float32"), (*kernel, "float32"), (1, 1), pads, (1, 1), "float32")
    return autotvm.task.create("conv2d_nhwc.codl", arguments, target)


@autotvm.template("tests.misbehaving")
def misbehaving(size: int) -> Any:
    config = autotvm.get_config()
    config.define_knob("deed", list(DEEDS))
    deed = config["deed"].val
    x = te.placeholder((size,), name="x")
    if not isinstance(config, autotvm.task.space.ConfigEntity):
        deed = "work"  # the space is being made
    if deed == "raise":
        raise ValueError("no schedule for this")
    if deed == "crash":
        os._exit(9)
    if deed == "hang":
        time.sleep(60)
    if deed == "abort on the phone":
        y = te.extern((size,), [x], lambda ins, outs: tir.call_extern("int32", "abort"), dtype="float32", name="y")
    else:
        y = te.compute((size,), lambda i: x[i] + 1.0, name="y")
    config.add_flop(size)
    return te.create_schedule(y.op), [x, y]


def inputs_of(task: Any, *indices: int) -> list[Any]:
    return [autotvm.measure.MeasureInput(task.target, task, task.config_space.get(i)) for i in indices]


def first_legal(task: Any, count: int) -> list[int]:
    return legal(task.config_space)[:count]
