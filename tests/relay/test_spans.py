"""Which nodes of a file operators came from, after all passes."""

from __future__ import annotations

import numpy as np
from tvm import relay
from tvm.ir.base import SequentialSpan

from tvm_codl.frontend.load import load_model
from tvm_codl.relay.calls import made_from
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.spans import source_names, span_names


def span(name: str) -> relay.Span:
    return relay.Span(relay.SourceName(name), 0, 0, 0, 0)


def test_a_span_of_several_has_all_their_names() -> None:
    assert span_names(None) == set()
    assert span_names(SequentialSpan([span("a"), SequentialSpan([span("b"), span("c")])])) == {"a", "b", "c"}


def test_what_replaces_calls_has_their_spans() -> None:
    x = relay.var("x", shape=(2,))
    a, b = (relay.Call(relay.op.get("negative"), [x], None, None, span(name)) for name in "ab")
    assert span_names(made_from(relay.exp(x), a, relay.exp(x), b).span) == {"a", "b"}
    assert made_from(relay.exp(x), relay.exp(x)).span is None


def test_scaled_and_transposed_convolutions_keep_their_nodes() -> None:
    prepared = prepare(load_model("zoo:small"))
    names = source_names(prepared.module)
    products = {o.id for o in prepared.graph.operators if o.kind in ("conv2d", "depthwise", "dense")}
    found = {name for operator in products for name in names[operator]}
    assert {"conv0", "conv4", "conv7", "conv10", "convtranspose13", "conv15", "gemm19"} <= found
    assert all(names[operator] for operator in products)
    assert np.count_nonzero([not names[o.id] for o in prepared.graph.operators]) == 1  # a change of the layout
