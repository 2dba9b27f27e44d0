from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tvm_codl.cost.delegate import GPUS, Gpu, is_winograd, schedule
from tvm_codl.cost.ensemble import QUICK
from tvm_codl.cost.phone_data import LEARNED, TREES
from tvm_codl.cost.phone_evaluation import evaluate_phones
from tvm_codl.cost.phone_features import amounts, phone_features
from tvm_codl.cost.phone_rows import PhoneOperator, read_phone_operators
from tvm_codl.errors import UserError

HEADER = "model,op,in_hw,in_channels,out_hw,out_channels,kernel,stride,groups,flops,device,gpu_kernel,latency_ms\n"
#: Beside the checkout, or where TVM_CODL_PHONES says.
PHONES = Path(os.environ.get("TVM_CODL_PHONES", Path(__file__).parents[4] / "shared/data/phones"))
with_phones = pytest.mark.skipif(not PHONES.is_dir(), reason=f"the phones' data are not at {PHONES} (TVM_CODL_PHONES)")


def conv(in_hw: int = 56, in_channels: int = 64, out_channels: int = 64, kernel: int = 1) -> PhoneOperator:
    sizes = (in_hw, in_channels, in_hw, out_channels, kernel, 1, 1)
    return PhoneOperator("net", "s10", "conv_2d", *sizes, "convolution_2d", ("relu",), 0.1)


def write(folder: Path, *lines: str) -> Path:
    (folder / "gpu_ops.csv").write_text(HEADER + "".join(line + "\n" for line in lines))
    return folder


def test_rows_are_read_without_the_nodes_numbers(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        "net,conv_2d,222,64,110,64,3,2,1,892108800,a03s,convolution_2d_5_linked_:_add_6_linked_:_relu_7,25.5",
        "net,mean,27,2048,2048,-,0,-,-,1492992,a03s,mean_121,0.3",
        "net,depthwise_conv_2d,31,384,14,1,5,2,1,3763200,a03s,depthwise_convolution_31,0.1",
        "net,fully_connected,-,2048,-,1000,-,-,-,4096000,a03s,fully_connected_122,0.15",
    )
    first, mean, depthwise, dense = read_phone_operators(folder)
    assert (first.kernel_class, first.fused, first.op_class) == ("convolution_2d", ("add", "relu"), "conv")
    assert (mean.out_hw, mean.out_channels) == (1, 2048)
    assert depthwise.out_channels == 384
    assert (dense.in_hw, dense.out_hw, dense.out_channels) == (1, 1, 1000)
    rows, names = phone_features([first, mean, depthwise, dense])
    assert rows.shape == (4, len(names)) and np.all(np.isfinite(rows))
    known = amounts([first, dense])
    assert known.flops.tolist() == [892108800.0, 4096000.0]
    assert np.all(known.units >= 1)


@pytest.mark.parametrize(
    "line",
    [
        "net,conv_2d,222,64,110,64,3,2,1,1,a03s,convolution_2d_5,-1",
        "net,conv_2d,222,64,110,64,3,2,1,1,a03s,convolution_2d_5,nan",
        "net,conv_2d,wide,64,110,64,3,2,1,1,a03s,convolution_2d_5,1",
        "net,unheard_of,222,64,110,64,3,2,1,1,a03s,convolution_2d_5,1",
        "net,conv_2d,222",
    ],
)
def test_other_files_are_refused_with_their_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError, match="line 2"):
        read_phone_operators(write(tmp_path, line))


def test_a_folder_without_the_file_and_an_unknown_phone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        evaluate_phones(tmp_path)
    write(tmp_path, "net,conv_2d,222,64,110,64,3,2,1,892108800,other,convolution_2d_5,25.5")
    with pytest.raises(UserError, match="no operator of s10"):
        evaluate_phones(tmp_path, devices=["s10"])
    with pytest.raises(UserError, match="other"):
        phone_features(read_phone_operators(tmp_path))


def test_a_schedule_covers_the_output() -> None:
    for gpu in GPUS.values():
        for op in (conv(), conv(7, 888, 888), conv(1, 16, 64), conv(14, 128, 3, 3), conv(112, 3, 7, 3)):
            plan = schedule(op, gpu)
            covered = [size * block for size, block in zip(plan.grid, plan.block, strict=True)]
            assert np.prod(covered) >= op.out_hw**2 * -(-op.out_channels // 4)
            assert plan.groups * np.prod(plan.group) >= plan.threads
            assert np.prod(plan.group) <= 256


def test_rules_by_hand() -> None:
    adreno = Gpu("adreno", 2, 128)
    # 7 x 7 x 222 slices are 42 waves of each unit; 111 pairs of slices, of which 37 divide; 4 columns fill 256 / 37
    plan = schedule(conv(7, 888, 888), adreno)
    assert (plan.block, plan.grid, plan.group) == ((2, 2, 2), (4, 4, 111), (4, 1, 37))
    assert plan.groups == 12
    wide = conv(56, 64, 64, 3)
    assert is_winograd(wide, GPUS["s10"]) and not is_winograd(wide, adreno)
    assert not is_winograd(conv(56, 60, 64, 3), GPUS["s10"])
    assert schedule(wide, GPUS["s10"]).grid[1] == 36


@with_phones
def test_the_winograd_rule_is_the_delegates() -> None:
    wrong = [
        op
        for op in read_phone_operators(PHONES)
        if op.op == "conv_2d" and is_winograd(op, GPUS[op.device]) != ("winograd" in op.kernel_class)
    ]
    assert not wrong


@with_phones
def test_shapes_that_were_held_out_on_a_real_phone() -> None:
    report = evaluate_phones(PHONES, seeds=(0,), devices=("a03s",), classes=("conv",), settings=QUICK, few=0)
    found = {result.learner: result.metrics for result in report.results}
    assert found[LEARNED].within_10 > 0.75
    assert found[LEARNED].median_error < 0.05
    assert found[LEARNED].coverage_90 is not None and found[LEARNED].coverage_90 > 0.8
    for baseline in ("CoDL linear", "roofline", "FLOPs", TREES):
        assert found[LEARNED].within_10 > found[baseline].within_10
    assert len(report.scatter[0].measured_ms) == found[LEARNED].n
