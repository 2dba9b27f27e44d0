"""Partitioned modules written by hand, so that the runtime is tested without the passes that make them."""

from __future__ import annotations

from functools import cache

import numpy as np
import tvm
from tvm import relay
from tvm.contrib.graph_executor import GraphModule


class Network:
    """Adds regions one by one; each is a function on a processor, in the contract of ``PartitionCoExecution``."""

    def __init__(self) -> None:
        self.mod = tvm.IRModule()
        self.count = 0

    def region(self, processor: str, body, *args: relay.Expr, shapes: list[tuple[int, ...]]) -> relay.Expr:
        params = [relay.var(f"p{i}", shape=shape) for i, shape in enumerate(shapes)]
        function = relay.Function(params, body(*params))
        function = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
        name = f"codl_{processor}_{self.count}"
        function = function.with_attr("global_symbol", name).with_attr("codl.processor", processor)
        function = function.with_attr("codl.chain", self.count).with_attr("codl.operators", str(self.count))
        self.mod[relay.GlobalVar(name)] = function
        self.count += 1
        return self.mod.get_global_var(name)(*args)

    def finish(self, inputs: list[relay.Var], result: relay.Expr) -> tvm.IRModule:
        self.mod["main"] = relay.Function(inputs, result)
        return self.mod


def convolutions(
    extent: int = 12, channels: int = 16, row: int = 5, channel: int = 16, seed: int = 0
) -> tuple[tvm.IRModule, tvm.IRModule]:
    """Three 3x3 convolutions, split along rows, channels and rows; and the same network unsplit."""
    rng = np.random.default_rng(seed)
    wide = 2 * channels
    w1 = rng.standard_normal((3, 3, channels, channels)).astype("float32") * 0.2
    w2 = rng.standard_normal((3, 3, channels, wide)).astype("float32") * 0.2
    w3 = rng.standard_normal((3, 3, wide, channels)).astype("float32") * 0.2

    def conv(x: relay.Expr, w: np.ndarray, padding: tuple[int, int, int, int] = (1, 1, 1, 1)) -> relay.Expr:
        return relay.nn.relu(
            relay.nn.conv2d(
                x,
                relay.const(w),
                kernel_size=(3, 3),
                padding=padding,
                channels=w.shape[-1],
                data_layout="NHWC",
                kernel_layout="HWIO",
            )
        )

    net = Network()

    def by_rows(x: relay.Expr, w: np.ndarray, at: int) -> relay.Expr:
        c = w.shape[2]
        top = relay.strided_slice(x, [0], [at + 1], strides=[1], axes=[1])
        bottom = relay.strided_slice(x, [at - 1], [extent], strides=[1], axes=[1])
        a = net.region("cpu", lambda p: conv(p, w, (1, 1, 0, 1)), top, shapes=[(1, at + 1, extent, c)])
        b = net.region("gpu", lambda p: conv(p, w, (0, 1, 1, 1)), bottom, shapes=[(1, extent - at + 1, extent, c)])
        return relay.concatenate([a, b], axis=1)

    def by_channels(x: relay.Expr, w: np.ndarray, at: int) -> relay.Expr:
        shape = (1, extent, extent, w.shape[2])
        a = net.region("cpu", lambda p: conv(p, w[..., :at]), x, shapes=[shape])
        b = net.region("gpu", lambda p: conv(p, w[..., at:]), x, shapes=[shape])
        return relay.concatenate([a, b], axis=3)

    x = relay.var("x", shape=(1, extent, extent, channels))
    split = net.finish([x], by_rows(by_channels(by_rows(x, w1, row), w2, channel), w3, extent - row))
    y = relay.var("x", shape=(1, extent, extent, channels))
    return split, tvm.IRModule.from_expr(relay.Function([y], conv(conv(conv(y, w1), w2), w3)))


@cache
def stock(mod: tvm.IRModule) -> GraphModule:
    with tvm.transform.PassContext(opt_level=1, config={"tir.disable_cse_tir": True}):
        return GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))


def answer(mod: tvm.IRModule, value: np.ndarray) -> np.ndarray:
    """What stock TVM computes on the CPU.  It is built once for each module, so that tests better share these."""
    runner = stock(mod)
    runner.set_input("x", value)
    runner.run()
    return runner.get_output(0).numpy()
