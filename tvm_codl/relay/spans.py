"""Spans: from which nodes of the file an operator was made.

The importer gives each call the name of its node.  Stock passes keep most of them; those that replace convolutions do not.
"""

from __future__ import annotations

import tvm
from tvm import relay
from tvm.ir.base import SequentialSpan

from tvm_codl.errors import UserError
from tvm_codl.relay.calls import is_call
from tvm_codl.relay.extract import read
from tvm_codl.relay.walk import in_order, rewrite

_WEIGHTED = ("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv2d_transpose", "nn.dense", "nn.matmul", "nn.batch_matmul")


def keeping_spans(inner: tvm.transform.Pass) -> tvm.transform.Pass:
    """``inner``, after which operators with weights have the spans that they had; for a pass that leaves their order."""

    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        made = inner(module)
        try:
            before, after = _weighted(module), _weighted(made)
        except UserError:  # control flow
            return made
        if [call.op for call in before] != [call.op for call in after]:
            return made
        spans = {new: old.span for old, new in zip(before, after, strict=True) if new.span is None and old.span}
        if not spans:
            return made
        return rewrite(
            made, lambda expr, new: relay.Call(expr.op, list(new), expr.attrs, expr.type_args, spans[expr]) if expr in spans else None
        )  # fmt: skip

    return tvm.transform.module_pass(transform, opt_level=0, name=inner.info.name)


def _weighted(module: tvm.IRModule) -> list[relay.Call]:
    return [expr for expr in in_order(module["main"].body) if is_call(expr, *_WEIGHTED)]


def source_names(prepared: tvm.IRModule) -> dict[int, set[str]]:
    """By operator of a prepared module's graph, the names of the nodes whose spans its calls have kept."""
    return {
        number: {name for expr in in_order(call.op.body) if is_call(expr) for name in span_names(expr.span)}
        for number, call in read(prepared)[2].items()
    }


def span_names(span: tvm.ir.Span | None) -> set[str]:
    if span is None:
        return set()
    if isinstance(span, SequentialSpan):
        return {name for part in span.spans for name in span_names(part)}
    return {str(span.source_name.name)}
