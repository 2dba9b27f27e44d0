"""Loops that advance pointers compute what loops with whole indices do."""

from __future__ import annotations

import re

import pytest

from tvm_codl.kernels.schedules.opencl_pointers import advancing
from tvm_codl.kernels.schedules.opencl_source import direct_vectors, sized, vectors_of_four

HEAD = "__kernel void k(__global float* restrict out, __global float4* restrict x, __global float* restrict w) {"
G = "((codl_index)get_group_id(0))"


def kernel(*body: str) -> str:
    return "\n".join([HEAD, "  for (int r = 0; r < 48; ++r) {", *(f"    {line}" for line in body), "  }", "}"])


def test_loads_that_differ_by_constants_share_a_pointer() -> None:
    text = advancing(
        kernel(
            f"a[0] = (a[0] + x[((({G} * 64) + (r * 2)) + 5)]);",
            f"a[1] = (a[1] + x[(({G} * 64) + (r * 2))]);",
            "b[0] = codl_load4(w + ((r * 16) - 4));",
        )
    )
    assert text.count("const __global float4* x_at") == 1 and text.count("const __global float* w_at") == 1
    assert "x_at0[5]" in text and "x_at0[0]" in text and "codl_load4(w_at1 + -4)" in text
    assert "x_at0 += 2;" in text and "w_at1 += 16;" in text


@pytest.mark.parametrize(
    "line",
    [
        "a[0] = x[((r / 3) + 1)];",  # no multiple of the loop's variable
        "a[0] = x[5];",  # the same in each turn
        "a[0] = private[(r * 4)];",  # no parameter
        "out[(r * 4)] = a[0];",  # a store
        "a[0] = x[select(r, 1, (r < 3))];",
    ],
)
def test_other_indices_stay(line: str) -> None:
    assert advancing(kernel(line)) == kernel(line)


def test_only_innermost_loops_change() -> None:
    text = "\n".join(
        [
            HEAD,
            "  for (int y = 0; y < 3; ++y) {",
            "    a[0] = x[(y * 7)];",
            "    for (int r = 0; r < 48; ++r) {",
            "      a[0] = x[((y * 7) + r)];",
            "    }",
            "  }",
            "}",
        ]
    )
    done = advancing(text)
    assert "    a[0] = x[(y * 7)];" in done and "x_at0 = x + ((y * 7));" in done
    # Declared for each turn of the outer loop, moved on in each of the inner one.
    assert re.search(r"for \(int y[^}]*x_at0 = [^}]*for \(int r[^}]*x_at0 \+= 1;", done)


def test_private_arrays_become_vectors_where_vectors_fill_them() -> None:
    text = "  float a[8];\n  float b[4];\n    vstore4(x[0], 0, a + 4);\n    b[1] = a[5];\n"
    assert vectors_of_four(text) == "  float4 a[2];\n  float b[4];\n    a[1] = x[0];\n    b[1] = a[1].s1;\n"
    ragged = "  float a[8];\n    vstore4(x[0], 0, a + 2);\n"
    assert vectors_of_four(ragged) == ragged


def test_a_kernel_says_its_group() -> None:
    text = sized("// codl group 16 4 1\n" + HEAD + "\n}")
    assert text == HEAD.replace("void", "__attribute__((reqd_work_group_size(16, 4, 1))) void") + "\n}"


def test_what_direct_vectors_writes_is_understood() -> None:
    load = "    acc = vload4(0, w + (r * 4));"
    assert "codl_load4(w_at0 + 0)" in advancing(direct_vectors(kernel(load)))


def test_a_parameter_has_the_type_of_the_kernel_that_is_defined() -> None:
    """A module declares its other kernels: there the name may be another type's."""
    declared = "__kernel void g(__global float* restrict w);\n"
    load = "    acc = vload4(0, w + (r * 4));"
    assert "codl_load4(w " in direct_vectors(declared + kernel(load))
    integers = declared + kernel(load).replace("__global float* restrict w", "__global uchar* restrict w")
    assert integers.count("uchar") == 1 and "codl_load4_uchar(w " in direct_vectors(integers)


def test_many_loads_are_parted_and_wait_for_their_use() -> None:
    loads = [f"b[{i}] = codl_load4(w + ((r * 64) + {i * 4}));" for i in range(9)]
    uses = [f"a[0] = a[0] + b[{i}];" for i in range(9)]
    again = ["b[0] = codl_load4(w + ((r * 64) + 36));", "b[1] = codl_load4(w + ((r * 64) + 40));", *uses[:2]]
    text = kernel(*loads, *uses, *again)
    done = advancing(text, sparing=True)
    order = [line.strip() for line in done.split("\n") if re.match(r" +(a|b)\[|.* if \(|.*w_at0 \+= ", line)]
    assert order[0].startswith("b[0] = ") and order[1:3] == ["a[0] = a[0] + b[0];", "w_at0 += 16 + nothing0;"]
    # Eight loads, then a part of the ninth and what is loaded again, and a turn's step less what was moved.
    assert [sum(part.count("codl_load4(") for part in done.split("if (")[i : i + 1]) for i in range(2)] == [8, 3]
    assert order[-1] == "w_at0 += 96 + nothing0;" and done.count("{") == done.count("}")


def test_what_may_be_loaded_anywhere_is_loaded_before_it() -> None:
    loads = [f"b[{i}] = codl_load4(w + ((r * 64) + {i * 4}));" for i in range(11)]
    done = advancing(kernel(*loads, "a[0] = b[r & 3];"), sparing=True)
    assert done.index("b[10] = ") < done.index("a[0] = b[r & 3];")
