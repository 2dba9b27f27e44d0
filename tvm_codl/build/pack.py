"""Packs weights into the layouts that kernels read, by numpy.

Relay does so by folding constants, for which it compiles a kernel for every weight: two thirds of the time that it takes to
optimise a region.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.relay import dataflow_pattern as pattern


def transform_layout(value: np.ndarray, source: str, target: str) -> np.ndarray | None:
    """From a layout without blocks (``HWIO``) to one with or without (``OHWI16o``); None for any other, and for blocks that
    do not fill."""
    parts = re.findall(r"(\d*)([a-zA-Z])", target)
    blocks = {letter.upper(): int(size) for size, letter in parts if size}
    axes: list[str] = []
    shape: list[int] = []
    for letter, extent in zip(source, value.shape, strict=False):
        block = blocks.get(letter, 1)
        if extent % block:
            return None
        axes += [letter, letter.lower()][: 1 + (letter in blocks)]
        shape += [extent // block, block][: 1 + (letter in blocks)]
    if not source.isupper() or len(source) != value.ndim or sorted(axes) != sorted(letter for _, letter in parts):
        return None
    return np.transpose(value.reshape(shape), [axes.index(letter) for _, letter in parts])


class _Evaluate(pattern.DFPatternCallback):
    def __init__(self) -> None:
        super().__init__()
        self.data, self.fill = pattern.is_constant(), pattern.is_constant()
        self.pattern = pattern.is_op("layout_transform")(self.data) | pattern.is_op("nn.pad")(self.data, self.fill)

    def callback(self, pre: relay.Expr, post: relay.Expr, node_map: Any) -> relay.Expr:
        value = post.args[0].data.numpy()
        if post.op.name == "layout_transform":
            made = transform_layout(value, str(post.attrs.src_layout), str(post.attrs.dst_layout))
        elif post.attrs.pad_mode == "constant":
            widths = [[int(n) for n in pair] for pair in post.attrs.pad_width]
            made = np.pad(value, widths, constant_values=post.args[1].data.numpy().item())
        else:
            made = None
        return post if made is None else relay.const(np.ascontiguousarray(made), str(value.dtype))


@tvm.transform.module_pass(opt_level=0, name="EvaluatePacking")
def _evaluate(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    return tvm.IRModule.from_expr(pattern.rewrite(_Evaluate(), mod["main"]))


@tvm.transform.module_pass(opt_level=0, name="PackWeights")
def PACK(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
    """Gives weights the layouts that kernels read.  ``@main`` is simplified already.

    Each stock pass infers all types anew, some three times, so those that would find nothing are left out.
    """
    operators = relay.analysis.list_op_freqs(mod)
    quantised = [relay.qnn.transform.CanonicalizeOps()] if any(name.startswith("qnn.") for name in operators) else []
    dilated = [relay.transform.FlattenAtrousConv()] if "nn.space_to_batch_nd" in operators else []
    return tvm.transform.Sequential(
        [
            *quantised,
            relay.transform.Legalize(),
            *dilated,
            _evaluate,  # Winograd's weights are made of constants
            relay.transform.AlterOpLayout(),
            _evaluate,
        ]
    )(mod)
