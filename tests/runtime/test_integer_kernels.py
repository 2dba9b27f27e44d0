"""Kernels of 8-bit integers: exactly NumPy's answer, and the right instruction in the loop that decides."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import autotvm, relay
from tvm.contrib import graph_executor

from tests.runtime.integer_cases import Case, Product
from tests.runtime.schedule_cases import OPTIONS
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.gpu import Kind, usual
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.kernels.target import vector_lanes
from tvm_codl.kernels.tuner.answers import HostAnswers

CPU = tvm.cpu()
AROUND = (1, 1, 1, 1)
CONVOLUTIONS = {
    "3x3": Case(16, 32, (14, 14), 3, AROUND),
    "5 channels": Case(5, 12, (9, 13), 3, AROUND),
    "stem": Case(3, 64, (23, 23), 7, (3, 3, 3, 3), stride=2),
    "1x1 strided": Case(24, 32, (14, 14), stride=2),
    "1x1 strided and padded": Case(14, 40, (6, 6), 1, AROUND, stride=2),
    "dilated": Case(8, 16, (15, 15), 3, (2, 2, 2, 2), dilation=2),
    "dilated, 5 channels to 3": Case(5, 3, (9, 9), 5, AROUND, dilation=2),
    "3 channels to 5, strided": Case(3, 5, (7, 7), 3, AROUND, stride=2),
    "14 channels": Case(8, 14, (9, 9)),
    "19 channels": Case(12, 19, (11, 11), 3, AROUND),
    "one position": Case(32, 64, (1, 1)),
    "width 7": Case(64, 48, (7, 7), 3, AROUND),
    "the upper rows of a split": Case(16, 32, (8, 14), 3, (1, 1, 0, 1)),
    "the lower rows of a split": Case(16, 32, (8, 15), 3, (0, 1, 1, 1), stride=2),
    "channels of a split": Case(16, 37, (7, 7), 3, AROUND),
}
DEPTHWISE = {
    "depthwise": Case(32, 32, (14, 14), 3, AROUND, depthwise=True),
    "depthwise strided": Case(24, 24, (13, 13), 5, (2, 2, 2, 2), stride=2, depthwise=True),
    "depthwise, 5 channels, dilated": Case(5, 5, (9, 9), 3, (2, 2, 2, 2), dilation=2, depthwise=True),
    "the lower rows of a depthwise split": Case(14, 14, (6, 9), 3, (0, 1, 1, 1), depthwise=True),
}
PRODUCTS = {"dense": Product(1, 64, 40), "rows": Product(17, 30, 33), "few": Product(2, 5, 3)}
CASES: dict[str, Case | Product] = {**CONVOLUTIONS, **DEPTHWISE, **PRODUCTS}


def test_values_are_shifted_where_the_instruction_reads_the_other_type() -> None:
    """By stock TVM, which computes what our target's passes make of the network."""
    wide = cpu_target("cascadelake", mtriple="x86_64-linux-gnu")
    for name in ("3x3", "19 channels", "dilated"):
        case = CONVOLUTIONS[name]
        mod = relay.transform.InferType()(case.module("int8"))
        with wide, tvm.transform.PassContext(opt_level=3, config=OPTIONS):
            shifted = relay.transform.InferType()(relay.transform.Legalize()(mod))
        assert "uint8" in str(shifted).partition("nn.conv2d")[0]
        with tvm.transform.PassContext(opt_level=1, config=OPTIONS):
            library = relay.build(shifted, "llvm")
        np.testing.assert_array_equal(_run(library, case, "int8"), case.expected("int8"))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", CASES)
def test_a_cpu_gives_the_exact_answer(name: str, dtype: str) -> None:
    case = CASES[name]
    np.testing.assert_array_equal(on_cpu(case, dtype), case.expected(dtype))


def test_this_computer_has_the_answer_to_a_gpus_kernel() -> None:
    """Weights are packed for the GPU."""
    phone = gpu_target(cpu_target(mattr="+neon", mtriple="aarch64-linux-gnu"), usual("valhall"))
    data, weights = ("TENSOR", (1, 9, 9, 12), "int8"), ("TENSOR", (4, 3, 3, 3, 4, 4), "int8")
    args = (data, weights, (1, 1), (1, 1, 1, 1), (1, 1), "int32")
    answers = HostAnswers(autotvm.task.create("conv2d_int8.codl", args, phone))
    assert answers.tolerance == 0
    by_place = [value for i, value in enumerate(answers.inputs[0]) if i != answers.place]
    x = next(value for value in by_place if value.ndim == 4).astype("int64")
    packed = next(value for value in by_place if value.ndim == 6).astype("int64")
    plain = packed.transpose(1, 2, 3, 5, 0, 4).reshape(3, 3, 12, 16)
    around = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    sums = sum(around[:, i : i + 9, j : j + 9] @ plain[i, j] for i in range(3) for j in range(3))
    np.testing.assert_array_equal(answers.wanted[0], sums)


#: On GPUs that the others are like.
FEWER = ("stem", "14 channels", "dilated, 5 channels to 3", "depthwise strided", "rows")


@pytest.mark.usefixtures("opencl")
@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "played") for name in CASES), *((n, k) for n in FEWER for k in ("bifrost", "adreno", "local"))],
)
def test_a_gpu_gives_the_exact_answer(name: str, kind: Kind, tmp_path: Path) -> None:
    case, dtype, cpu = CASES[name], "int8" if kind == "bifrost" else "uint8", cpu_target()
    path = tmp_path / "kernels.so"
    _library(
        case.module(dtype), gpu_target(cpu, usual(kind, vector_lanes(cpu) if kind == "played" else 4))
    ).export_library(str(path))
    found = _run(tvm.runtime.load_module(str(path)), case, dtype, tvm.device("opencl", 0))
    np.testing.assert_array_equal(found, case.expected(dtype))


@pytest.mark.parametrize(
    ("target", "dtype", "instruction", "share"),
    [
        ({"mcpu": "cascadelake", "mtriple": "x86_64-linux-gnu"}, "uint8", "vpdpbusd.*zmm", 0.5),
        ({"mcpu": "cascadelake", "mtriple": "x86_64-linux-gnu"}, "int8", "vpdpbusd.*zmm", 0.5),
        ({"mcpu": "alderlake", "mtriple": "x86_64-linux-gnu"}, "uint8", "vpdpbusd.*ymm", 0.4),
        ({"mcpu": "skylake-avx512", "mtriple": "x86_64-linux-gnu"}, "uint8", "vpmaddwd.*zmm", 0.3),
        ({"mcpu": "haswell", "mtriple": "x86_64-linux-gnu"}, "uint8", "vpmaddwd.*ymm", 0.25),
        ({"mattr": "+neon,+dotprod", "mtriple": "aarch64-linux-gnu"}, "uint8", r"sdot\s", 0.35),
        ({"mattr": "+neon,+dotprod,+i8mm", "mtriple": "aarch64-linux-gnu"}, "uint8", r"usdot\s", 0.35),
        ({"mattr": "+neon,+dotprod,+i8mm", "mtriple": "aarch64-linux-gnu"}, "int8", r"\ssdot\s", 0.35),
        ({"mattr": "+neon", "mtriple": "aarch64-linux-gnu"}, "uint8", r"smlal\s", 0.35),
    ],
)
def test_the_hot_loop_is_made_of_the_instruction(
    target: dict[str, str], dtype: str, instruction: str, share: float
) -> None:
    assembly = build(Case(64, 64, (56, 56), 3, AROUND).module(dtype), cpu_target(**target)).get_source("asm")
    loop = max(loops(assembly), key=lambda lines: sum(bool(re.search(instruction, line)) for line in lines))
    assert sum(bool(re.search(instruction, line)) for line in loop) >= share * len(loop)
    assert not re.search(r"\b(call|bl|vpextr\w*|vpinsr\w*|umov|smov)\b", "\n".join(loop))


def on_cpu(case: Case | Product, dtype: str) -> np.ndarray:
    return _run(_library(case.module(dtype), cpu_target()), case, dtype)


def _run(library: tvm.runtime.Module, case: Case | Product, dtype: str, device: tvm.runtime.Device = CPU) -> np.ndarray:
    executor = graph_executor.GraphModule(library["default"](device))
    executor.set_input(0, case.data(dtype))
    executor.run()
    return executor.get_output(0).numpy()


def build(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    return _library(mod, target).get_lib()


def _library(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    with scheduled(), tvm.transform.PassContext(opt_level=3, config=OPTIONS):
        return relay.build(mod, target)


def loops(assembly: str) -> list[list[str]]:
    """The instructions of each innermost loop: between a label and a jump back to it, without a label in between."""
    found, lines = [], [line for line in assembly.split("\n") if not re.match(r"\s+\.|\.Ltmp|\s*[#/]", line)]
    at = {line.split(":")[0]: i for i, line in enumerate(lines) if re.match(r"\.L\w+:", line)}
    for end, line in enumerate(lines):
        jump = re.match(r"\s+(?:j\w+|b\.?\w*|cbn?z\s+\w+,)\s+(\.L\w+)\s*$", line)
        start = at.get(jump[1], end) if jump else end
        body = lines[start + 1 : end]
        if start < end and not any(re.match(r"\.L\w+:", inside) for inside in body):
            found.append(body)
    return found
