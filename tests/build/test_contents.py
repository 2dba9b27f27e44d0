"""Equal kernels have one digest, whatever they are called and wherever they stand."""

from __future__ import annotations

from tvm_codl.build.contents import contents
from tvm_codl.build.kernel import Kernel
from tvm_codl.build.launches import Launch


def function(*kernels: tuple[str, str], groups: tuple[int, ...] = ()) -> Kernel:
    """As TVM writes OpenCL code: in front of each kernel of a function all are declared."""
    declared = "".join(f"__kernel void {name}(__global float* restrict x);\n" for name, _ in kernels)
    text = "".join(
        f"// Function: {name}\n{declared}__kernel void {name}(__global float* restrict x) {{\n{body}\n}}\n\n"
        for name, body in kernels
    )
    return Kernel("", b"", text, launches=tuple(Launch(size, 0) for size in groups))


def test_names_and_neighbours_do_not_count() -> None:
    f, g, h = (function((f"{name}_kernel", f"x[0] = {k};"), groups=(8,)) for name, k in (("f", 1), ("g", 2), ("h", 2)))
    assert len(contents([f, g])) == 2 and set(contents([h])) < set(contents([f, g]))


def test_the_body_and_the_group_count() -> None:
    found = [
        contents([function(("f_kernel", body), groups=(size,))])
        for body in ("x[0] = 1;", "x[0] = 2;")
        for size in (8, 16)
    ]
    assert len({digest for (digest,) in found}) == 4


def test_each_kernel_of_a_function_has_its_own_group() -> None:
    two = ("f_kernel", "x[0] = 1;"), ("f_kernel_1", "x[0] = 1;")
    assert len(contents([function(*two, groups=(8, 8))])) == 1
    assert len(contents([function(*two, groups=(8, 16))])) == 2
