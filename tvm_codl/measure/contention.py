"""Measures how much slower each processor becomes while the other works."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import tvm
from tvm import relay

from tvm_codl.build.dataflow import Argument, Dataflow, Region, Root, Value
from tvm_codl.build.library import build_dataflow
from tvm_codl.cost.contention import Beside, Contention
from tvm_codl.errors import DeviceError

ROUNDS = 3
REPEAT = 3
LEAST_MS = 1.0
_FLOAT = 4

Body = Callable[[relay.Expr], relay.Expr]


def _compute(x: relay.Expr) -> relay.Expr:
    """Much arithmetic on few bytes."""
    for _ in range(8):
        x = relay.sqrt(relay.add(x, relay.const(1.0)))
    return x


#: By what bounds it: shape of its input, and what it does.  Registers, a core's cache, a shared cache, memory.
KERNELS: dict[str, tuple[tuple[int, ...], Body]] = {
    "compute": ((1, 32, 32, 64), _compute),
    "cache": ((1, 32, 32, 128), lambda x: relay.add(x, relay.const(1.0))),
    "shared cache": ((1, 128, 64, 64), lambda x: relay.add(x, relay.const(1.0))),
    "memory": ((1, 256, 256, 64), lambda x: relay.add(x, relay.const(1.0))),
}


def kernels() -> tuple[Dataflow, list[float]]:
    """Every kernel on the CPU, then every one on the GPU, each a region with buffers of its own; and their bytes."""
    roots, regions, moved = [], [], []
    for processor in ("cpu", "gpu"):
        for name, (shape, body) in KERNELS.items():
            x = relay.var("x", shape=shape)
            function = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body(x))))["main"]
            roots += [Root(shape, "float32"), Root(shape, "float32")]
            source, result = Value(len(roots) - 2), Value(len(roots) - 1)
            regions.append(
                Region(f"{processor}_{name.replace(' ', '_')}", processor, "", function, [Argument(source)], [result])
            )
            size = float(_FLOAT)
            for extent in shape:
                size *= extent
            moved.append(2 * size)
    return Dataflow(roots, regions, [], [], timed_alone=True), moved


def measure_contention(ready: Callable[[Any], Any], cpu: tvm.target.Target, gpu: tvm.target.Target) -> Contention:
    """Times every kernel of each processor alone and beside every one of the other; under a second when built.

    ``ready`` sends a library to the phone and opens it.
    """
    flow, moved = kernels()
    module = ready(build_dataflow(flow, cpu, gpu, keep_weights=False))
    return Contention.fit(beside(module, flow, moved))


def beside(module: Any, flow: Dataflow, moved: list[float]) -> list[Beside]:
    """The measurements of :func:`measure_contention`: medians over rounds in which each is taken in turn.

    Pairs that the phone cannot keep busy are left out.
    """
    on = [region.processor for region in flow.regions]
    samples: dict[tuple[int, int | None], list[float]] = {}
    for _ in range(ROUNDS):
        for i in range(len(on)):
            for other in (None, *(k for k in range(len(on)) if on[k] != on[i])):
                try:
                    times = module.time_region_busy(i, other, REPEAT, LEAST_MS)
                except DeviceError:
                    continue
                samples.setdefault((i, other), []).extend(times)
    middle = {pair: median(times) for pair, times in samples.items()}
    return [
        Beside(on[i], moved[i], middle[i, None], moved[other], middle[other, None], busy)  # type: ignore[arg-type]
        for (i, other), busy in middle.items()
        if other is not None
    ]
