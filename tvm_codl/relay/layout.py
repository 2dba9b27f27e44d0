"""NCHW → NHWC.

In NHWC with one picture, a piece of the rows of a tensor is contiguous memory: two processors can each write their
rows of one buffer, and joining costs nothing.
"""

from __future__ import annotations

from tvm import relay

from tvm_codl.relay.calls import Site, call_pass, is_call, made_from, shape_of

#: "default": the weight layout that TVM's kernels want beside NHWC, HWIO or, for depthwise convolution, HWOI.
NHWC_LAYOUTS = {
    "nn.conv2d": ["NHWC", "default"],
    "nn.conv2d_transpose": ["NHWC", "default"],
    "nn.max_pool2d": ["NHWC", "default"],
    "nn.avg_pool2d": ["NHWC", "default"],
    "nn.global_avg_pool2d": ["NHWC", "default"],
    "nn.global_max_pool2d": ["NHWC", "default"],
    "image.resize2d": ["NHWC"],
}


def _drop(site: Site) -> relay.Expr | None:
    """A layout change that moves no data, before a reshape; and a pair of changes that cancel."""
    if site.op not in ("reshape", "nn.batch_flatten", "squeeze", "layout_transform"):
        return None
    if not is_call(site.args[0], "layout_transform"):
        return None
    (inner,), first, second = site.args[0].args, site.args[0].attrs, site.call.attrs
    if site.op != "layout_transform":
        moves_no_data = sum(size > 1 for size in shape_of(site.call.args[0])) <= 1
        return made_from(relay.reshape(inner, site.shape), site.call) if moves_no_data else None
    cancel = str(first.src_layout) == str(second.dst_layout) and str(first.dst_layout) == str(second.src_layout)
    return inner if cancel else None


DropLayoutChanges = call_pass("DropLayoutChanges", _drop)
