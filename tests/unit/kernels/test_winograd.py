"""Winograd's filtering: its matrices, and where and how a convolution uses it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.kernels.tiles import winograd
from tvm_codl.kernels.tiles.register_tiles import Problem
from tvm_codl.kernels.tiles.winograd import SIZES, Convolutions

SIZE, CHANNELS = st.integers(1, 70), st.sampled_from([4, 16, 24, 64, 256])


@pytest.mark.parametrize("m", SIZES)
def test_transformed_products_are_the_convolution(m: int) -> None:
    random = np.random.default_rng(m)
    weights = random.standard_normal((3, 3, 2, 8)).astype("float32")
    read = random.standard_normal((m + 2, m + 2, 2))
    outwards, inwards = winograd.matrices(m)
    made = winograd.transformed(weights, m, 4)
    assert made.shape == ((m + 2) ** 2, 2, 2, 4)
    matrix = made.transpose(0, 2, 1, 3).reshape(m + 2, m + 2, 2, 8)
    values = np.einsum("ip,ijc,jq->pqc", inwards, read, inwards)
    found = np.einsum("pi,pqk,qj->ijk", outwards, np.einsum("pqc,pqck->pqk", values, matrix), outwards)
    wanted = [
        [np.einsum("yxc,yxck->k", read[i : i + 3, j : j + 3], weights.astype("float64")) for j in range(m)]
        for i in range(m)
    ]
    np.testing.assert_allclose(found, np.array(wanted), rtol=0, atol=1e-5)


#: Prints the threads that ran while weights were transformed, beside the one that asked for it.
_OTHERS = """
import pathlib, threading, time
import numpy as np
from tvm_codl.kernels.tiles import winograd

def switches():
    tasks = [task for task in pathlib.Path("/proc/self/task").iterdir() if int(task.name) != threading.get_native_id()]
    return {task.name: [line for line in (task / "status").read_text().splitlines() if "switches" in line] for task in tasks}

before, weights = None, np.ones((3, 3, 256, 64), "float32")
while before != (before := switches()):  # a new library's threads go to sleep
    time.sleep(0.2)
winograd.transformed(weights, 4, 8)
after = switches()
print(sorted(task for task in after if after[task] != before.get(task)))
"""


def test_weights_are_transformed_by_one_thread() -> None:
    """Builds run side by side: threads of each would wait for one another's cores."""
    ran = subprocess.run([sys.executable, "-c", _OTHERS], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@given(SIZE, SIZE, CHANNELS, CHANNELS, st.booleans())
def test_a_convolution_is_chosen_for_alone_as_among_many(h: int, w: int, c: int, k: int, gpu: bool) -> None:
    lanes = 8 if k % 8 == 0 else 4
    one = Convolutions(h, w, c, k, lanes)
    arrays = Convolutions(*(np.array([1, n]) for n in (h, w, c, k, lanes)))
    m = int(winograd.size_of(one, gpu))
    assert m == winograd.size_of(arrays, gpu)[1]
    if m:
        assert one.cycles(m) < one.direct_cycles()


@given(SIZE, SIZE, CHANNELS, CHANNELS, st.sampled_from(SIZES), st.booleans())
def test_a_cut_covers_all_tiles_in_whole_register_tiles(h: int, w: int, c: int, k: int, m: int, gpu: bool) -> None:
    lanes = 8 if k % 8 == 0 else 4
    one = Convolutions(h, w, c, k, lanes)
    cut = winograd.cut(one, m, Problem(1, 1, 1, 1, 1, lanes, vectors=16), gpu)
    assert cut.across * m >= w > (cut.across - 1) * m and cut.down * m >= h
    assert cut.tiles % cut.columns == 0 and (k // lanes) % cut.blocks == 0
    assert cut.rows * cut.across >= cut.tiles if cut.group == 0 else cut.rows % cut.group == 0
    assert cut.rows >= cut.down


def test_few_positions_of_many_channels_stay_as_they_are() -> None:
    """Their transformed weights take longer to load than the products that they save."""
    assert winograd.size_of(Convolutions(4, 4, 512, 512, 8), gpu=False) == 0
    assert winograd.size_of(Convolutions(7, 7, 512, 512, 8), gpu=False) == 2, "the direct kernel loads weights too"
    assert winograd.size_of(Convolutions(14, 14, 16, 64, 16), gpu=False) == 0, "its cache holds these"
    assert winograd.size_of(Convolutions(56, 56, 64, 64, 8), gpu=False) == 4
    assert winograd.size_of(Convolutions(56, 56, 3, 64, 8), gpu=False) == 0, "no whole vectors of inputs"


def test_what_a_gpu_leaves_in_memory_is_bounded() -> None:
    large = Convolutions(224, 224, 64, 64, 8)
    assert winograd.size_of(large, gpu=False) == 4
    assert winograd.size_of(large, gpu=True) == 0
