"""The pass that folds constants, and merges sums and products by them, still in NCHW."""

from __future__ import annotations

import numpy as np
from tvm import relay

from tvm_codl.relay.calls import Site, as_constant, call_pass, is_call, made_from, shape_of, value_of
from tvm_codl.relay.fold import fold


def _fold_or_merge(site: Site) -> relay.Expr | None:
    folded = fold(site)
    return _merge(site) if folded is None else folded


def _merge(site: Site) -> relay.Expr | None:
    """Divisions by a constant become products, constants stand on the right, runs of sums or products become one.

    Copies of what an operator computed (ONNX's Identity) are dropped.
    """
    if site.op == "copy" and isinstance(site.args[0], relay.Call):
        return site.args[0]
    if site.op not in ("add", "multiply", "divide") or not site.call.checked_type.dtype.startswith("float"):
        return None
    op, (x, y) = site.op, site.args
    constant, operand = value_of(y), site.call.args[0]
    if constant is None and op != "divide" and value_of(x) is not None:
        x, y, constant, operand = y, x, value_of(x), site.call.args[1]
    if constant is None:
        return None
    rank = len(shape_of(operand))
    if op == "divide":
        op, constant = "multiply", np.asarray(1.0 / constant, constant.dtype)
    inner, merged = value_of(x.args[1]) if is_call(x, op) else None, [site.call]
    if inner is not None and site.uses[x] == 1:
        constant = np.asarray(inner + constant if op == "add" else inner * constant)
        x, merged = x.args[0], [x, site.call]
        if inner.ndim >= rank:  # x may have fewer axes than the constant: keep the constant's
            rank = 0
    if op == "multiply" and is_call(x, "add") and is_call(x.args[0], "nn.conv2d_transpose") and site.uses[x] == 1:
        # FoldScaleAxis skips transposed convolutions: bring the scale next to it, for ScaleTransposed.
        bias = value_of(x.args[1])
        if bias is not None:
            return relay.add(relay.multiply(x.args[0], as_constant(constant)), as_constant(bias * constant))
    if op == "multiply" and constant.size == 1 and _ends_convolution(x):
        # FoldScaleAxis takes only scales that have one value for each channel.
        constant = np.full((site.shape[1], 1, 1), constant.reshape(()), constant.dtype)
    if constant.size == 1 and constant.ndim <= rank:  # with more axes it would widen the result
        constant = constant.reshape(())
    return made_from(getattr(relay, op)(x, as_constant(constant)), *merged)


def _ends_convolution(x: relay.Expr) -> bool:
    if is_call(x, "add") and value_of(x.args[1]) is not None:
        x = x.args[0]
    return is_call(x, "nn.conv2d")


MergeConstants = call_pass("MergeConstants", _fold_or_merge)
