"""AutoTVM tasks for tests: a real convolution of ours, and a template whose configurations misbehave as they are told."""

from __future__ import annotations

import os
import time
from typing import Any

from tvm import autotvm, te, tir
from tvm.target import Target

from tvm_codl.kernels.schedules.depthwise import TASK as DEPTHWISE
from tvm_codl.kernels.target import is_phone, vector_lanes
from tvm_codl.kernels.tuner.trials import legal

DEEDS = ("work", "raise", "crash", "hang", "abort on the phone")


def conv_task(target: Any, extent: int = 14, channels: int = 16, out: int = 32, window: int = 3) -> Any:
    """A convolution that takes microseconds; its output is as large as its input."""
    lanes = vector_lanes(target)
    window_and_inputs = (window, window, channels)
    # A phone's GPU reads weights as they lie.
    weights = (*window_and_inputs, out) if is_phone(target) else (out // lanes, *window_and_inputs, lanes)
    data, kernel = ("TENSOR", (1, extent, extent, channels)), ("TENSOR", weights)
    pads = (window // 2,) * 4
    arguments = ((*data, "float32"), (*kernel, "float32"), (1, 1), pads, (1, 1), "float32")
    return autotvm.task.create("conv2d_nhwc.codl", arguments, target)


def depthwise_task(target: Any, channels: int = 32) -> Any:
    """A depthwise convolution, 3x3."""
    data, kernel = ("TENSOR", (1, 14, 14, channels), "float32"), ("TENSOR", (3, 3, channels, 1), "float32")
    return autotvm.task.create(DEPTHWISE, (data, kernel, (1, 1), (1, 1, 1, 1), (1, 1), "float32"), target)


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


ANSWERS = ("right", "wrong", "unwritten", "unsteady")


@autotvm.template("tests.answers")
def answering(size: int) -> Any:
    """Twice the first argument, by one work-item: on a GPU with the mistake that its knob names."""
    config = autotvm.get_config()
    config.define_knob("answer", list(ANSWERS))
    answer = config["answer"].val if isinstance(config, autotvm.task.space.ConfigEntity) else "right"
    on_gpu = "gpu" in Target.current().keys
    x, weights = te.placeholder((size,), name="x"), te.placeholder((size,), name="weights")

    def loops(inputs: Any, outputs: Any) -> Any:
        builder = tir.ir_builder.create()
        given, result = builder.buffer_ptr(inputs[0]), builder.buffer_ptr(outputs[0])
        if on_gpu:
            builder.scope_attr(te.thread_axis("blockIdx.x"), "thread_extent", 1)
        with builder.for_range(0, size - 1 if answer == "unwritten" else size, name="i") as i:
            result[i] = given[i] * (2.5 if answer == "wrong" else 2.0)
            if answer == "unsteady":
                given[i] = given[i] + 1.0
        return builder.get()

    y = te.extern((size,), [x, weights], loops, dtype="float32", name="y")
    config.add_flop(2 * size)
    return te.create_schedule(y.op), [x, weights, y]
