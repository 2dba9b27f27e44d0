from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.phones.board import RK3399, evaluate_board, read_board
from tests.unit.benchmarks.phones.test_evaluation import PHONES, with_phones
from tvm_codl.cost.evaluation.held_out import LEARNED
from tvm_codl.errors import UserError

HEADER = "data_shape,kernel_shape,dtype,strides,padding,kind,cpu_ms,gpu_ms\n"


def row(height: int, out_c: int, ms: float) -> str:
    return f'"[1, 16, {height}, {height}]","[{out_c}, 16, 3, 3]",float32,"[1, 1]","(1, 1, 1, 1)",conv2d,{ms:.6f},{2 * ms:.6f}\n'


def test_rows_are_read(tmp_path: Path) -> None:
    (tmp_path / RK3399).write_text(HEADER + row(56, 64, 1.5))
    cpu, gpu = read_board(tmp_path)
    found = cpu.workload
    assert found == gpu.workload
    assert (found.out_h, found.out_w, found.out_c, found.kind) == (56, 56, 64, "conv2d")
    assert found.flops == 2 * 56 * 56 * 64 * 16 * 9
    assert (cpu.processor, cpu.ms, gpu.processor, gpu.ms) == ("cpu", 1.5, "gpu", 3.0)


@pytest.mark.parametrize("text", ["", row(56, 64, 1.0).replace("[1, 16", "[2, 16"), row(56, 64, -1.0)])
def test_what_is_no_convolution_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / RK3399).write_text(text and HEADER + text)
    if not text:
        (tmp_path / RK3399).unlink()
    with pytest.raises(UserError):
        read_board(tmp_path)


def test_a_lawful_board_is_learned(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    shapes = [(int(h), int(c)) for h, c in zip(random.integers(7, 112, 60), random.integers(4, 256, 60), strict=True)]
    (tmp_path / RK3399).write_text(HEADER + "".join(row(h, c, 0.01 + h * h * c / 1e6) for h, c in shapes))
    found = {(r.device, r.learner): r.metrics for r in evaluate_board(tmp_path) if r.op_class == "all"}
    assert found["rk3399 cpu", LEARNED].n == 60
    assert found["rk3399 cpu", LEARNED].within_10 > 0.8
    assert found["rk3399 gpu", LEARNED].within_10 > 0.8


@with_phones
def test_the_real_boards_rows_are_read() -> None:
    found = read_board(PHONES)
    assert len(found) > 100
    assert {sample.workload.kind for sample in found} == {"conv2d", "depthwise"}
