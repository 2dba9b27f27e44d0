from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tvm_codl
from benchmarks.phones.delegate import Gpu, is_winograd, read_gpus, schedule
from benchmarks.phones.evaluation import MEASURED, WHOLE, evaluate_phones
from benchmarks.phones.kernels import describe
from benchmarks.phones.operators import PhoneOperator, read_phone_operators
from tvm_codl.cost.evaluation.held_out import LEARNED
from tvm_codl.cost.evaluation.metrics import Metrics
from tvm_codl.errors import UserError

HEADER = "model,op,in_hw,in_channels,out_hw,out_channels,kernel,stride,groups,flops,device,gpu_kernel,latency_ms\n"
ROOT = Path(tvm_codl.__file__).parents[1]
KNOWN = ROOT / "benchmarks/phones/gpus.json"
GPUS = read_gpus(KNOWN)
#: Beside the checkout, or where TVM_CODL_PHONES says.
PHONES = Path(os.environ.get("TVM_CODL_PHONES", ROOT.parent / "shared/data/phones"))
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
    described, amounts = describe([first, mean, depthwise, dense], GPUS["a03s"])
    assert len(described.rows) == len(described.work) == 4
    assert np.all(np.isfinite(described.rows)) and np.all(np.isfinite(described.work)) and np.all(described.start > 0)
    assert (amounts.flops[0], amounts.flops[3]) == (892108800.0, 4096000.0)
    assert np.all(amounts.units >= 1)


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


def test_a_folder_without_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        evaluate_phones(tmp_path)


@pytest.mark.parametrize("text", ["[]", '{"a": {"vendor": "other"}}', '{"a": {"wave": 0}}', '{"a": {"waves": 8}}', ""])
def test_other_facts_are_refused_with_an_example(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpus.json"
    path.write_text(text)
    with pytest.raises(UserError) as refused:
        read_gpus(path)
    assert str(path) in refused.value.what
    assert all(field in refused.value.next for field in Gpu.__struct_fields__[:-1])


def lawful(folder: Path) -> Path:
    """30 networks of five convolutions each on a phone; times follow from the work."""
    random = np.random.default_rng(0)
    operators, networks = [], ["family,model,flops,size_bytes,device,processor,dtype,latency_ms,std_ms"]
    for net in range(30):
        sizes = [(int(h), int(c)) for h, c in zip(random.integers(7, 80, 5), random.integers(8, 200, 5), strict=True)]
        times = [0.05 + h * h * c * c / 1e8 for h, c in sizes]
        for (h, c), ms in zip(sizes, times, strict=True):
            operators.append(f"net{net},conv_2d,{h},{c},{h},{c},1,1,1,0,new,convolution_2d_5,{ms:.6f}")
        networks.append(f"cnn,net{net},0,0,new,gpu,float,{1.1 * sum(times) + 0.2:.6f},0")
        networks.append(f"cnn,net{net},0,0,new,1large,float,{100.0},0")
    (folder / "models_e2e.csv").write_text("\n".join(networks) + "\n")
    return write(folder, *operators)


def by_learner(found: object, op_class: str) -> dict[str, Metrics]:
    return {r.learner: r.metrics for r in found.results if r.op_class == op_class}  # type: ignore[attr-defined]


def test_a_phone_without_facts_is_evaluated_and_told_where_they_belong(tmp_path: Path) -> None:
    said: list[str] = []
    report = evaluate_phones(lawful(tmp_path), log=said.append)
    assert report.gpus == {"new": Gpu()}
    assert any("new" in line and "gpus.json" in line for line in said)
    assert by_learner(report, "conv")[LEARNED].within_10 > 0.7
    networks = by_learner(report, WHOLE)
    assert networks[LEARNED].n == 30
    assert networks[MEASURED].within_5 == 1.0
    assert networks[LEARNED].within_10 > 0.8


def test_facts_lie_beside_the_measurements(tmp_path: Path) -> None:
    (tmp_path / "gpus.json").write_text('{"new": {"vendor": "mali", "compute_units": 12, "wave": 8}}')
    report = evaluate_phones(lawful(tmp_path), quick=True)
    assert report.gpus == {"new": Gpu("mali", 12, 8)}
    assert not by_learner(report, WHOLE)


def test_a_schedule_covers_the_output() -> None:
    for gpu in (Gpu(), *GPUS.values()):
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
def test_shapes_that_were_held_out_on_a_real_phone(tmp_path: Path) -> None:
    header, *lines = (PHONES / "gpu_ops.csv").read_text().splitlines(keepends=True)
    chosen = [line for line in lines if ",conv_2d," in line and ",a03s," in line]
    (tmp_path / "gpu_ops.csv").write_text("".join([header, *chosen]))
    report = evaluate_phones(tmp_path, KNOWN, quick=True)
    found = by_learner(report, "conv")
    assert found[LEARNED].within_10 > 0.75
    assert found[LEARNED].median_error < 0.05
    assert found[LEARNED].coverage_90 is not None and found[LEARNED].coverage_90 > 0.8
    for baseline in ("CoDL linear", "roofline", "FLOPs", "plain trees"):
        assert found[LEARNED].within_10 > found[baseline].within_10
    assert len(report.scatter[0].measured_ms) == found[LEARNED].n
