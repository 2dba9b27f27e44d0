"""NCHW → NHWC.

In NHWC with one picture, a piece of the rows of a tensor is one contiguous piece of memory; so two processors can each
write their rows of one buffer, and joining costs nothing.
"""

from __future__ import annotations

import tvm
from tvm import relay

from tvm_codl.frontend.fold import fold_constants
from tvm_codl.frontend.rewrite import Site, is_call, rewrite, shape_of
from tvm_codl.frontend.transposed import rewrite_transposed

# "default": the weight layout that TVM's kernels want beside NHWC, HWIO or, for depthwise convolution, HWOI.
DESIRED = {
    "nn.conv2d": ["NHWC", "default"],
    "nn.conv2d_transpose": ["NHWC", "default"],
    "nn.max_pool2d": ["NHWC", "default"],
    "nn.avg_pool2d": ["NHWC", "default"],
    "nn.global_avg_pool2d": ["NHWC", "default"],
    "nn.global_max_pool2d": ["NHWC", "default"],
    "image.resize2d": ["NHWC"],
}


def to_nhwc(module: tvm.IRModule) -> tvm.IRModule:
    """``module`` with its two-dimensional operators in NHWC; ``@main`` keeps its type."""
    passes = relay.transform
    with tvm.transform.PassContext(opt_level=3, config={"tir.disable_cse_tir": True}):
        module = passes.InferType()(passes.ConvertLayout(DESIRED)(module))
        module = fold_constants(module)
        module = rewrite_transposed(module)
        module = rewrite(module, _drop_needless)
        return passes.InferType()(module)


def count_transposes(module: tvm.IRModule) -> int:
    """How many ``layout_transform`` and ``transpose`` calls ``@main`` holds."""
    found: list[relay.Expr] = []
    relay.analysis.post_order_visit(module["main"], lambda e: found.append(e) if _is_transpose(e) else None)
    return len(found)


def _is_transpose(expr: relay.Expr) -> bool:
    return is_call(expr, "layout_transform", "transpose")


def _drop_needless(site: Site) -> relay.Expr | None:
    """A layout change that moves no data, before a reshape; and a pair of changes that cancel."""
    if site.op in ("reshape", "nn.batch_flatten", "squeeze") and is_call(site.args[0], "layout_transform"):
        inner = site.args[0].args[0]
        if sum(size > 1 for size in shape_of(site.call.args[0])) <= 1:
            return relay.reshape(inner, site.shape)
    if site.op == "layout_transform" and is_call(site.args[0], "layout_transform"):
        first, second = site.args[0].attrs, site.call.attrs
        if str(first.src_layout) == str(second.dst_layout) and str(first.dst_layout) == str(second.src_layout):
            return site.args[0].args[0]
    return None
