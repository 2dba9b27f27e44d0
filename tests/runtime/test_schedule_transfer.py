"""Which configuration a kernel gets, and what is made of it for a piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import autotvm, relay
from tvm.autotvm.measure import MeasureInput, MeasureResult

from tests.runtime.schedule_cases import OPTIONS, conv
from tvm_codl.errors import UserError
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.register import cpu_target
from tvm_codl.kernels.reuse import place_of, read
from tvm_codl.kernels.schedules.opencl_source import aligned_vectors, direct_vectors
from tvm_codl.kernels.tiles.register_tiles import VECTOR_REGISTERS, Problem, Tiles, candidates, choose, fit
from tvm_codl.kernels.workloads import workloads


def asked(mod: tvm.IRModule, *paths: Path) -> dict[str, str]:
    with scheduled(paths, shipped=False) as context, tvm.transform.PassContext(opt_level=3, config=OPTIONS):
        relay.build(mod, cpu_target(lanes=16))
    return {str(workload[1][1]): how for (_, workload), how in context.seen.items()}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One record: a 3×3 convolution of 16 to 64 channels at 14×14, with its fourth-best tile."""
    target = cpu_target(lanes=16)
    ((name, *args),) = workloads(conv(16, 64, 14, 14, 3, pad=1), target)
    task = autotvm.task.create(name, tuple(args), target)
    entry = MeasureInput(target, task, task.config_space.get(3)), MeasureResult((1e-3,), 0, 1.0, 1.0)
    path = tmp_path_factory.mktemp("records") / "cpu.log"
    path.write_text("# a comment\n" + autotvm.record.encode(*entry) + "\n")
    return path


def test_exact_then_relative_then_estimate(records: Path) -> None:
    assert asked(conv(16, 64, 14, 14, 3, pad=1), records) == {"(1, 14, 14, 16)": "measured"}
    assert asked(conv(16, 32, 14, 14, 3, pad=1), records) == {"(1, 14, 14, 16)": "transferred"}
    assert asked(conv(16, 64, 5, 14, 3, pad=1), records) == {"(1, 5, 14, 16)": "transferred"}
    assert asked(conv(16, 64, 14, 7, 3, pad=1), records) == {"(1, 14, 7, 16)": "estimated"}
    assert asked(conv(16, 64, 14, 14, 3, pad=1)) == {"(1, 14, 14, 16)": "estimated"}


def test_what_was_tuned_for_other_vectors_is_not_used(records: Path) -> None:
    depthwise = relay.nn.conv2d(
        relay.var("x", shape=(1, 14, 14, 32)), relay.const(np.ones((3, 3, 32, 1), "float32")), padding=(1, 1),
        kernel_size=(3, 3), channels=32, groups=32, data_layout="NHWC", kernel_layout="HWOI",
    )  # fmt: skip
    mod = tvm.IRModule.from_expr(depthwise)
    wide, narrow = cpu_target(lanes=16), cpu_target(lanes=8)
    ((name, *args),) = workloads(mod, wide)
    assert workloads(mod, narrow) == [(name, *args)]
    task = autotvm.task.create(name, tuple(args), wide)
    entry = MeasureInput(wide, task, task.config_space.get(1)), MeasureResult((1e-3,), 0, 1.0, 1.0)
    path = records.with_name("depthwise.log")
    path.write_text(autotvm.record.encode(*entry) + "\n")
    with scheduled([path], shipped=False) as context:
        assert context.suggestion(wide, (name, *args)) is not None
        assert context.suggestion(narrow, (name, *args)) is None


def test_a_users_record_comes_before_the_packages(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their times say: those of two phones cannot be compared."""
    target = cpu_target(lanes=16)
    ((name, *args),) = workloads(conv(16, 64, 14, 14, 3, pad=1), target)
    task = autotvm.task.create(name, tuple(args), target)
    package = records.parent / "package"
    package.mkdir()
    entry = MeasureInput(target, task, task.config_space.get(0)), MeasureResult((1e-9,), 0, 1.0, 1.0)
    (package / "cpu.log").write_text(autotvm.record.encode(*entry) + "\n")
    monkeypatch.setattr("tvm_codl.kernels.reuse.SHIPPED", package)
    with scheduled([records]) as context:
        assert context.suggestion(target, (name, *args)).index == 3
    with scheduled() as context:
        assert context.suggestion(target, (name, *args)).index == 0


def test_piece_belongs_to_its_operators_family() -> None:
    def workload(rows: int, blocks: int, pad: tuple[int, ...]) -> tuple:
        data, kernel = ("TENSOR", (1, rows, 56, 64), "float32"), ("TENSOR", (blocks, 3, 3, 64, 16), "float32")
        return "conv2d_nhwc.codl", (data, kernel, (1, 1), pad, (1, 1), "float32")

    whole, piece = place_of(*workload(56, 4, (1, 1, 1, 1))), place_of(*workload(21, 3, (1, 1, 0, 1)))
    assert whole.family == piece.family and piece.extents == (20, 48)


def test_records_read_and_bad_lines_named(records: Path, tmp_path: Path) -> None:
    (tuning,) = read([records]).entries
    assert tuning.serves.processor == "cpu" and tuning.seconds == 1e-3
    broken = tmp_path / "broken.log"
    broken.write_text("{}\n")
    with pytest.raises(UserError, match=r"broken.log:1"):
        read([broken])
    with pytest.raises(UserError, match="cannot read"):
        read([tmp_path / "missing.log"])


def test_silence_is_given_back() -> None:
    before = autotvm.GLOBAL_SCOPE.silent
    with scheduled(shipped=False):
        assert autotvm.GLOBAL_SCOPE.silent
    assert autotvm.GLOBAL_SCOPE.silent == before


@pytest.mark.parametrize("columns", [1, 2, 7, 13, 14, 53, 112])
@pytest.mark.parametrize("channels", [16, 48, 80, 512])
def test_estimates_fit_the_registers(columns: int, channels: int) -> None:
    problem = Problem(rows=7, columns=columns, channels=channels, depth=576, channels_in=64, lanes=16)
    tiles = choose(problem)
    assert tiles.columns * tiles.blocks + tiles.blocks < VECTOR_REGISTERS
    assert problem.blocks % tiles.blocks == 0 and problem.rows % tiles.rows == 0 and tiles.columns <= columns
    assert fit(tiles, problem) == tiles
    assert (tiles.columns, tiles.blocks) == candidates(problem, 5)[0]


def test_tiles_of_a_whole_are_made_legal_for_a_piece() -> None:
    piece = Problem(rows=5, columns=14, channels=48, depth=576, channels_in=64, lanes=16)
    fitted = fit(Tiles(columns=14, blocks=2, unroll=4, rows=4), piece)
    assert piece.blocks % fitted.blocks == 0 and piece.rows % fitted.rows == 0 and fitted.unroll == 4


def test_vector_accesses_become_casts() -> None:
    source = (
        "__kernel void k(__global float* restrict a, __global int* restrict i) {\n"
        "  float acc[32];\n"
        "  vstore16(((float16)(0.0f, 1.0f)), 0, acc + 16);\n"
        "  vstore8((vload8(0, a + (x * 8)) + vload8(0, acc + 8)), 0, a + 8);\n"
        "  vstore4(vload4(0, i + 0), 0, i + 4);\n}\n"
    )
    text = direct_vectors(source)
    assert "codl_put16((((float16)(0.0f, 1.0f))), acc + 16);" in text
    assert "codl_store8(((codl_load8(a + (x * 8)) + codl_take8(acc + 8))), a + 8);" in text
    assert "codl_store4_int((codl_load4_int(i + 0)), i + 4);" in text
    assert "(*(const __global codl_int4*)" in text and "typedef int4 codl_int4 __attribute__((aligned(4)));" in text
    assert direct_vectors("void f() {}") == "void f() {}"


def test_accesses_to_a_kernels_own_parameters_are_aligned() -> None:
    """Other kernels of the module are declared, with a parameter that has the name of this one's array."""
    source = (
        "__kernel void other(__global float* restrict sums);\n"
        "__kernel void k(__global float* restrict a, __global int* restrict i);\n"
        "__kernel void k(__global float* restrict a, __global int* restrict i) {\n"
        "  float sums[8];\n"
        "  vstore4(vload4(0, a + 4) + vload4(0, sums + 4), 0, sums + 0);\n"
        "  vstore4(max(vload4(0, sums + 0), b), 0, a + (x * 4));\n"
        "  vstore4(vload4(0, i + 0), 0, i + 4);\n}\n"
    )
    text = aligned_vectors(source)
    assert "vstore4(codl_aligned4(a + 4) + vload4(0, sums + 4), 0, sums + 0);" in text
    assert "codl_put_aligned4((max(vload4(0, sums + 0), b)), a + (x * 4));" in text
    assert "vstore4(vload4(0, i + 0), 0, i + 4);" in text
    assert aligned_vectors("void f() {}") == "void f() {}"


def test_group_numbers_are_wide_only_where_no_overload_depends_on_them() -> None:
    plain = "  codl = a[((convert_int(get_group_id(0))) * 8)] + vload4(0, a + 0);\n"
    head = "__kernel void k(__global float* restrict a) {\n"
    assert "((codl_index)get_group_id(0)) * 8" in direct_vectors(head + plain)
    assert "convert_int(get_group_id(0))" in direct_vectors(head + plain + "  x = select(1, 2, y);\n")
