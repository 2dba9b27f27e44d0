"""Equal kernels have one digest, whatever they are called and wherever they stand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tvm_codl.build.contents import contents
from tvm_codl.build.launches import Launch


def library(*kernels: tuple[str, str]) -> Any:
    """As TVM writes OpenCL code: in front of each kernel all are declared."""
    declared = "".join(f"__kernel void {name}(__global float* restrict x);\n" for name, _ in kernels)
    text = "".join(
        f"// Function: {name}\n{declared}__kernel void {name}(__global float* restrict x) {{\n{body}\n}}\n\n"
        for name, body in kernels
    )
    inner = SimpleNamespace(type_key="opencl", get_source=lambda: text, imported_modules=[])
    return SimpleNamespace(type_key="llvm", imported_modules=[inner])


def groups(*sizes: int) -> list[Launch]:
    return [Launch(size, 0) for size in sizes]


def test_names_and_neighbours_do_not_count() -> None:
    one = contents(library(("f_kernel", "x[0] = 1;"), ("g_kernel", "x[0] = 2;")), {"f": groups(8), "g": groups(8)})
    other = contents(library(("h_kernel", "x[0] = 2;")), {"h": groups(8)})
    assert len(one) == 2 and set(other) < set(one)


def test_the_body_and_the_group_count() -> None:
    names = [
        contents(library(("f_kernel", body)), {"f": groups(size)})
        for body in ("x[0] = 1;", "x[0] = 2;")
        for size in (8, 16)
    ]
    assert len({digest for (digest,) in names}) == 4


def test_each_kernel_of_a_function_has_its_own_group() -> None:
    two = library(("f_kernel", "x[0] = 1;"), ("f_kernel_1", "x[0] = 1;"))
    assert len(contents(two, {"f": groups(8, 8)})) == 1
    assert len(contents(two, {"f": groups(8, 16)})) == 2
