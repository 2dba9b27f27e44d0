"""AutoTVM's lines: nothing is lost on the way out and in, and TVM's own reader takes what we write."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tvm import autotvm

import tvm_codl.kernels.tuned
from tests.examples import examples
from tests.unit.records.strategies import KEYS, kernels, records
from tests.unit.records.test_store import record
from tvm_codl.records.autotvm import PIECE, Profile, kernel_line, piece_line, profile_line, read_line
from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.record import ErrorNo, Record

#: TopHub's packages: version 0.2 for several targets, as TVM 0.7 and later wrote them.
TOPHUB = [
    '{"input": ["llvm -keys=cpu -mcpu=core-avx2", "dense_nopack.x86", [["TENSOR", [1, 512], "float32"], '
    '["TENSOR", [1000, 512], "float32"], null, "float32"], {}], "config": {"index": 46, "code_hash": null, "entity": '
    '[["tile_y", "sp", [-1, 1]], ["tile_x", "sp", [-1, 40]], ["tile_k", "sp", [-1, 64]]]}, "result": '
    '[[1.7854e-05], 0, 0.3126, 1571958467.5], "version": 0.2, "tvm_version": "0.7.dev1"}',
    '{"input": ["opencl -keys=mali,opencl,gpu -device=mali -max_num_threads=256 -model=rk3399", '
    '"conv2d_nchw_spatial_pack.mali", [["TENSOR", [1, 64, 56, 56], "float32"], ["TENSOR", [64, 64, 3, 3], "float32"], '
    '[1, 1], [1, 1, 1, 1], [1, 1], "float32"], {}], "config": {"index": 1023, "code_hash": null, "entity": '
    '[["tile_co", "sp", [-1, 4, 4]], ["reorder_0", "re", [0, 1, 2]], ["ann_reduce", "an", ["unroll", "unroll"]], '
    '["auto_unroll", "ot", 16]]}, "result": [[0.00312, 0.00315], 0, 4.1, 1527000000], "version": 0.2, '
    '"tvm_version": "0.7.dev1"}',
    '{"input": ["cuda -keys=cuda,gpu -max_num_threads=1024 -model=1080ti -thread_warp_size=32", "conv2d_nchw.cuda", '
    '[["TENSOR", [1, 3, 224, 224], "float32"]], {}], "config": {"index": 5, "code_hash": null, "entity": []}, '
    '"result": [[1000000000.0], 4, 10.2, 1527000000.25], "version": 0.2, "tvm_version": "0.8.dev0"}',
]
#: Version 0.1, as TVM 0.6 and earlier wrote them.
OLD = (
    '{"i": ["llvm -device=arm_cpu -model=pixel2 -target=arm64-linux-android -mattr=+neon", "topi_nn_conv2d", '
    '[["TENSOR", [1, 512, 7, 7], "float32"], ["TENSOR", [512, 512, 3, 3], "float32"], [1, 1], [1, 1], [1, 1], "NCHW", '
    '"float32"], {}, ["conv2d", [1, 512, 7, 7, "float32"]], {"i": 88, "t": "direct", "c": null, "e": '
    '[["tile_co", "sp", [128, 4]], ["ann_spatial", "an", ["unroll", "vec"]]]}], "r": [[0.0055], 0, 2.1, 1531288270.1], '
    '"v": 0.1}'
)


def decoded(line: str) -> tuple[object, object]:
    """What AutoTVM's own reader makes of a line."""
    read = list(autotvm.record.load_from_buffer(io.StringIO(line + "\n")))
    assert len(read) == 1
    return read[0]


@given(kernels)
def test_kernel_records_come_back(kernel: KernelRecord) -> None:
    assert read_line(kernel_line(kernel)) == kernel


@given(records)
def test_pieces_come_back(made: Record) -> None:
    assert read_line(piece_line(made)) == made


@settings(max_examples=examples(40))
@given(kernels.map(lambda k: replace(k, args='[["TENSOR", [1, 2], "float32"], 3, null]')))
def test_autotvm_reads_kernel_records_and_writes_the_same(kernel: KernelRecord) -> None:
    measured, result = decoded(kernel_line(kernel))
    assert (measured.task.name, result.error_no) == (kernel.task, kernel.error_no)
    assert result.costs == (kernel.costs or (1e9,))
    assert (result.all_cost, result.timestamp) == (kernel.all_cost, kernel.timestamp)
    assert measured.task.args == (("TENSOR", (1, 2), "float32"), 3, None)
    again = read_line(autotvm.record.encode(measured, result))
    assert isinstance(again, KernelRecord)
    assert {**json.loads(again.config), "code_hash": 0} == {**json.loads(unique(kernel.config)), "code_hash": 0}


def unique(config: str) -> str:
    """AutoTVM keeps the last of entities with the same name, in the place of the first."""
    value = json.loads(config)
    last = {name: [name, *rest] for name, *rest in value["entity"]}
    return json.dumps(value | {"entity": list(last.values())})


@settings(max_examples=examples(40))
@given(records)
def test_a_piece_is_whole_after_autotvm_has_read_and_written_it(made: Record) -> None:
    measured, result = decoded(piece_line(made))
    assert (measured.task.name, result.error_no) == (PIECE, made.error_no)
    assert (measured.target.kind.name == "llvm") == (made.processor == "cpu")
    if made.ok:
        assert result.costs == tuple(time / 1e3 for time in made.times_ms)
    assert read_line(autotvm.record.encode(measured, result)) == made


@pytest.mark.parametrize("line", TOPHUB)
def test_tophubs_lines_come_back(line: str) -> None:
    kernel = read_line(line)
    assert isinstance(kernel, KernelRecord)
    assert json.loads(kernel_line(kernel)) == json.loads(line)


def test_a_target_of_another_tvm_is_kept_as_it_is_written() -> None:
    """TVM 0.19 has no -link-params any more and refuses such a line; that is no reason to lose it."""
    line = TOPHUB[0].replace("-keys=cpu", "-keys=cpu -link-params=0")
    kernel = read_line(line)
    assert isinstance(kernel, KernelRecord) and "-link-params=0" in kernel.target
    assert json.loads(kernel_line(kernel)) == json.loads(line)


def test_the_shipped_logs_come_out_byte_for_byte() -> None:
    for path in sorted(Path(tvm_codl.kernels.tuned.__file__).parent.glob("*.log")):
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        made = [read_line(line) for line in lines]
        assert lines and [kernel_line(kernel) for kernel in made if isinstance(kernel, KernelRecord)] == lines


def test_version_one_becomes_version_two() -> None:
    kernel = read_line(OLD)
    assert isinstance(kernel, KernelRecord)
    assert (kernel.task, kernel.costs, kernel.seconds, kernel.processor) == ("topi_nn_conv2d", (0.0055,), 0.0055, "cpu")
    assert json.loads(kernel.config)["template"] == "direct"
    measured, result = decoded(kernel_line(kernel))
    assert measured.config["tile_co"].size == [128, 4] and result.timestamp == 1531288270.1
    assert read_line(kernel_line(kernel)) == kernel


def test_a_failure_has_autotvms_number_and_no_cost() -> None:
    kernel = read_line(TOPHUB[2])
    assert isinstance(kernel, KernelRecord)
    assert (kernel.ok, kernel.costs, kernel.error_no) == (False, (), ErrorNo.RUNTIME_DEVICE)
    assert kernel.seconds == float("inf")
    numbers = {name: int(value) for name, value in autotvm.MeasureErrorNo.__dict__.items() if name.isupper()}
    assert numbers == {number.name: int(number) for number in ErrorNo if number < 100}
    failed = record(KEYS[0], times_ms=(), error="the kernel needs more local memory", error_no=1)
    _, result = decoded(piece_line(failed))
    assert (result.error_no, result.costs) == (autotvm.MeasureErrorNo.INSTANTIATION_ERROR, (1e9,))


@pytest.mark.parametrize("number", [ErrorNo.GPU_WRONG, ErrorNo.GPU_UNSTEADY])
def test_answers_that_are_wrong_or_unsteady_are_failures_to_autotvm(number: ErrorNo) -> None:
    kernel = read_line(TOPHUB[2])
    assert isinstance(kernel, KernelRecord)
    kernel = replace(kernel, error_no=int(number))
    _, result = decoded(kernel_line(kernel))
    assert (result.error_no, result.costs) == (number, (1e9,))
    assert read_line(kernel_line(kernel)) == kernel and not kernel.ok


def test_profiles_are_comments_to_autotvm() -> None:
    line = profile_line('{"b": 1, "a": "\\u00e9"}')
    assert read_line(line) == Profile('{"a":"\\u00e9","b":1}')
    assert list(autotvm.record.load_from_buffer(io.StringIO(line + "\n"))) == []
    assert read_line("") is None and read_line("# a comment\n") is None


def changed(**fields: object) -> str:
    return json.dumps(json.loads(TOPHUB[0]) | fields)


@pytest.mark.parametrize(
    "line",
    [
        *("nonsense", "[]", "{}", "3", "null", "[" * 100_000, TOPHUB[0][:-1], "a\tb\tc\td\te\tf"),
        *('#codl.profile {"a": ', "#codl.profile []", TOPHUB[0].replace("1.7854e-05", "NaN")),
        *(changed(version=0.3), changed(input=["llvm", "t", []]), changed(input=["", "t", [], {}])),
        *(changed(input=["llvm", "t", [], {"a": 1}]), changed(input=["llvm", "t", {}, {}])),
        *(changed(config={}), changed(config={"index": 1, "code_hash": None, "entity": [["a", "zz", 1]]})),
        *(
            changed(result=[[], 0, 1.0, 1.0]),
            changed(result=[[-1.0], 0, 1.0, 1.0]),
            changed(result=[[1.0], 9, 1.0, 1.0]),
        ),
        *(changed(result=[[1.0], 0, 1.0]), changed(result=[["fast"], 0, 1.0, 1.0]), changed(result=[[1e999], 0, 1, 1])),
        *(changed(input=["llvm", PIECE, [], {}]), changed(input=["llvm", PIECE, [1] * 15, {}])),
        OLD.replace('"r": [[', '"r": [['[:-1]),
    ],
)
def test_what_is_no_line(line: str) -> None:
    with pytest.raises(ValueError):
        read_line(line)


@settings(max_examples=examples(50))
@given(st.text(max_size=60) | st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists).map(json.dumps))
def test_any_text_is_a_record_or_a_kind_error(text: str) -> None:
    try:
        read_line(text)
    except ValueError:
        pass
