"""The kernels of phones' GPUs against stock TVM, run by the device that there is."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tvm import relay

from tests.runtime.schedule_cases import conv, module, ours, stock, weights
from tvm_codl.kernels.gpu import Kind

pytestmark = pytest.mark.usefixtures("opencl")
nn = relay.nn

CASES = {
    "3x3": conv(16, 32, 14, 14, 3, pad=1),
    "1x1": conv(32, 64, 28, 28, 1),
    "odd columns": conv(8, 16, 6, 29, 3, pad=1),
    "odd columns without padding": conv(16, 24, 13, 13, 1),
    "channels of no whole vectors": conv(5, 14, 9, 13, 3, pad=1),
    "19 channels": conv(12, 19, 11, 11, 3, pad=1),
    "three channels out": conv(32, 3, 20, 20, 5, pad=2),
    "stem": conv(3, 64, 23, 23, 7, stride=2, pad=3),
    "strided": conv(24, 32, 14, 14, 1, stride=2),
    "strided 3x3": conv(8, 32, 15, 15, 3, stride=2, pad=1),
    "dilated": conv(8, 16, 15, 15, 3, dilation=2, pad=2),
    "small map": conv(64, 96, 7, 7, 3, pad=1),
    "one position": conv(32, 64, 1, 1, 1),
    "prime extents": conv(4, 116, 13, 17, 3),
    "dense": module(lambda x: nn.relu(nn.bias_add(nn.dense(x, weights(40, 64)), weights(40))), (1, 64)),
    "dense rows": module(lambda x: nn.dense(x, weights(33, 30)), (17, 30)),
    "batch": module(lambda x, y: nn.batch_matmul(x, y), (3, 17, 20), (3, 24, 20)),
    "batch of odd sizes": module(lambda x, y: nn.batch_matmul(x, y), (2, 5, 7), (2, 9, 7)),
    "batch broadcast": module(lambda x, y: nn.batch_matmul(x, y, transpose_b=False), (3, 17, 20), (1, 20, 24)),
    "batch transposed": module(
        lambda x, y: nn.batch_matmul(x, y, transpose_a=True, transpose_b=False), (3, 20, 18), (3, 20, 24)
    ),
}


@cache
def expected(name: str) -> list[np.ndarray]:
    return stock(CASES[name])


@pytest.mark.parametrize("kind", ["bifrost", "adreno"])
@pytest.mark.parametrize("name", CASES)
def test_kernel_gives_stock_answer(name: str, kind: Kind, library_path: Path) -> None:
    for got, wanted in zip(ours(CASES[name], "gpu", library_path, 4, kind), expected(name), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
