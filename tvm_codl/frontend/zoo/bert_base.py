"""BERT base, uncased (Devlin et al. 2019, section 3), for one sequence of 128 tokens, with seeded weights.

Section 3: 12 layers, hidden size 768, 12 heads, "total parameters = 110M"; without the pooler and with one kind of
segment, as here, 108,890,880.  11.2 G multiply-adds in the encoder.  The input is token numbers, all attended to; the
output the last hidden state.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from tvm_codl.frontend.zoo.entry import build_once
from tvm_codl.frontend.zoo.network import Network
from tvm_codl.graph.opgraph import Shape

WORDS, POSITIONS = 30522, 512
LAYERS, HIDDEN, HEADS, WIDER = 12, 768, 12, 4
EPSILON = 1e-12


def build(tokens: int = 128, layers: int = LAYERS) -> onnx.ModelProto:
    net = Network("bert_base", seed=768)
    words = net.weight((net.random.standard_normal((WORDS, HIDDEN), np.float32)) * np.float32(0.02))
    positions = net.weight((net.random.standard_normal((POSITIONS, HIDDEN), np.float32)) * np.float32(0.02))
    here = net.add("Slice", positions, *(net.constant(np.array([v], np.int64)) for v in (0, tokens, 0)))
    segment = net.weight(net.random.standard_normal(HIDDEN).astype(np.float32) * 0.02)
    flat = net.add("Reshape", "input", net.constant(np.array([tokens], np.int64)))
    x = net.add("Add", net.add("Add", net.add("Gather", words, flat, axis=0), here), segment)
    x = _normalise(net, x)
    for _ in range(layers):
        x = _normalise(net, net.add("Add", net.dense(_attention(net, x, tokens), HIDDEN, HIDDEN), x))
        y = _gelu(net, net.dense(x, HIDDEN, WIDER * HIDDEN))
        x = _normalise(net, net.add("Add", net.dense(y, WIDER * HIDDEN, HIDDEN), x))
    x = net.add("Reshape", x, net.constant(np.array([1, tokens, HIDDEN], np.int64)))
    return net.finish((1, tokens), x, (1, tokens, HIDDEN), TensorProto.INT64)


def _attention(net: Network, x: str, tokens: int) -> str:
    each = HIDDEN // HEADS
    query, key, value = (
        net.add(
            "Transpose",
            net.add("Reshape", net.dense(x, HIDDEN, HIDDEN), net.constant(np.array([tokens, HEADS, each], np.int64))),
            perm=perm,
        )
        for perm in ([1, 0, 2], [1, 2, 0], [1, 0, 2])
    )
    scores = net.add("Mul", net.add("MatMul", query, key), net.constant(np.float32(each**-0.5)))
    mixed = net.add("Transpose", net.add("MatMul", net.add("Softmax", scores, axis=-1), value), perm=[1, 0, 2])
    return net.add("Reshape", mixed, net.constant(np.array([tokens, HIDDEN], np.int64)))


def _gelu(net: Network, x: str) -> str:
    """x · (1 + erf(x / √2)) / 2."""
    half = net.add("Mul", x, net.constant(np.float32(0.5)))
    bent = net.add("Erf", net.add("Mul", x, net.constant(np.float32(2**-0.5))))
    return net.add("Mul", half, net.add("Add", bent, net.constant(np.float32(1))))


def _normalise(net: Network, x: str) -> str:
    """Layer normalisation, written out as exporters do for this operator set."""
    centred = net.add("Sub", x, net.add("ReduceMean", x, axes=[-1]))
    variance = net.add("ReduceMean", net.add("Mul", centred, centred), axes=[-1])
    y = net.add("Div", centred, net.add("Sqrt", net.add("Add", variance, net.constant(np.float32(EPSILON)))))
    gamma = net.weight(net.random.uniform(0.8, 1.2, HIDDEN).astype(np.float32))
    return net.add("Add", net.add("Mul", y, gamma), net.bias(HIDDEN))


def sample(shape: Shape) -> np.ndarray:
    """Any words of the vocabulary."""
    return np.random.default_rng(0).integers(0, WORDS, shape)


ENTRIES = (build_once("bert_base", build, sample=sample),)
