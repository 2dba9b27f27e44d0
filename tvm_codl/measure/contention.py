"""Measures how much slower each processor becomes while the other works."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relay

from tvm_codl.build.dataflow import Argument, Dataflow, Region, Root, Value, shape_of
from tvm_codl.cost.contention import Beside, Contention
from tvm_codl.errors import DeviceError

ROUNDS = 5
REPEAT = 2
LEAST_MS = 1.0
_FLOAT = 4


class Program:
    """A small network of float32 tensors, by its operators in the order in which they are added."""

    def __init__(self) -> None:
        self.roots: list[Root] = []
        self.regions: list[Region] = []

    def tensor(self, shape: tuple[int, ...], name: str = "") -> Value:
        self.roots.append(Root(shape, "float32", name))
        return Value(len(self.roots) - 1)

    def add(self, name: str, processor: str, operator: Callable[..., relay.Expr], *sources: Value) -> Value:
        """Runs ``operator`` on the tensors ``sources``; returns its result."""
        given = [relay.var(f"x{k}", shape=self.roots[source.root].shape) for k, source in enumerate(sources)]
        function = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(given, operator(*given))))["main"]
        result = self.tensor(shape_of(function.ret_type))
        self.regions.append(Region(name, processor, "", function, [Argument(each) for each in sources], [result]))
        return result


def increment(x: relay.Expr) -> relay.Expr:
    return relay.add(x, relay.const(1.0))


class Kernel(NamedTuple):
    """What a kernel reads, and does: a product with a matrix of weights (outputs, inputs), or adding one without."""

    shape: tuple[int, ...]
    weights: tuple[int, ...] = ()

    def apply(self, x: relay.Expr) -> relay.Expr:
        return relay.nn.dense(x, relay.const(np.zeros(self.weights, "float32"))) if self.weights else increment(x)


#: By what bounds them: arithmetic, as in most of a network; a core's cache; a shared cache; and memory, of which a matrix
#: reads more than a phone's last cache holds, each weight once.
KERNELS = {
    "compute": Kernel((196, 512), (512, 512)),
    "cache": Kernel((1, 32, 32, 128)),
    "shared cache": Kernel((1, 128, 64, 64)),
    "memory": Kernel((1, 8192), (1536, 8192)),
}


def kernels() -> tuple[Dataflow, list[float]]:
    """Every kernel on the CPU, then every one on the GPU, each a region with buffers of its own; and their bytes."""
    program, moved = Program(), []
    for processor in ("cpu", "gpu"):
        for name, kernel in KERNELS.items():
            source = program.tensor(kernel.shape)
            result = program.add(f"{processor}_{name.replace(' ', '_')}", processor, kernel.apply, source)
            held = [kernel.shape, program.roots[result.root].shape, *([kernel.weights] if kernel.weights else [])]
            moved.append(float(_FLOAT * sum(math.prod(extents) for extents in held)))
    return Dataflow(program.roots, program.regions, [], [], timed_alone=True), moved


def measure_contention(ready: Callable[[Dataflow], Any]) -> Contention:
    """Times every kernel of each processor alone and beside every one of the other; a few seconds when built.

    ``ready`` builds a program and opens it on the phone.
    """
    flow, moved = kernels()
    return Contention.fit(beside(ready(flow), flow, moved))


def beside(module: Any, flow: Dataflow, moved: list[float]) -> list[Beside]:
    """The measurements of :func:`measure_contention`: medians over rounds in which each is taken in turn.

    Pairs that the phone cannot keep busy are left out.
    """
    on = [region.processor for region in flow.regions]
    alone: dict[int, list[float]] = {}
    ratios: dict[tuple[int, int], list[float]] = {}
    for _ in range(ROUNDS):
        for i in range(len(on)):
            own = median(module.time_region_busy(i, None, REPEAT, LEAST_MS))
            alone.setdefault(i, []).append(own)
            for other in (k for k in range(len(on)) if on[k] != on[i]):
                try:
                    times = module.time_region_busy(i, other, REPEAT, LEAST_MS)
                except DeviceError:
                    continue
                # Against the time of the same moment: a phone's speed is not the same all the time.
                ratios.setdefault((i, other), []).append(median(times) / own)
    middle = {i: median(times) for i, times in alone.items()}
    return [
        Beside(on[i], moved[i], middle[i], moved[other], middle[other], middle[i] * median(shares))  # type: ignore[arg-type]
        for (i, other), shares in ratios.items()
    ]
