"""A net of matrix products: branches of dense layers and the products of their results, with seeded weights.

It has the dominant operators of transformers and nothing else.  Matrices are 256 × 1024: 268 million multiply-adds a product.
4 dense layers of 1024 × 1024 (4,198,400 parameters with biases) and one product of two computed matrices, 2·256·256·1024
multiply-adds for a branch there and back: 1.21 G in all.
"""

from __future__ import annotations

import numpy as np
import onnx

from tvm_codl.frontend.zoo.entry import build_once
from tvm_codl.frontend.zoo.network import Network

ROWS, COLUMNS = 256, 1024


def build(rows: int = ROWS, columns: int = COLUMNS) -> onnx.ModelProto:
    net = Network("matmul", seed=11)
    left, right, values = (net.dense("input", columns, columns) for _ in range(3))
    scores = net.add("MatMul", left, net.add("Transpose", right, perm=[1, 0]))
    # Half of He's variance in each factor, and a sum over ``columns`` products.
    scores = net.add("Mul", scores, net.constant(np.float32(0.5 / columns)))
    mixed = net.add("Relu", net.add("MatMul", scores, values))
    return net.finish((rows, columns), net.dense(mixed, columns, columns), (rows, columns))


ENTRIES = (build_once("matmul", build),)
