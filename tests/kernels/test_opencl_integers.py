"""What TVM writes wrong of 8-bit integers in OpenCL C is corrected."""

from __future__ import annotations

from tvm_codl.kernels.schedules.opencl_dots import corrected

HEAD = "__kernel void g(__global float* restrict x);\n__kernel void f(__global uchar* restrict x, __global uint* restrict y) {\n"


def test_values_that_lie_apart_are_a_vector() -> None:
    loads = [f"((0x000000ff << {8 * i}) & (x[v_.s{i}] << {8 * i}))" for i in range(8)]
    text = corrected(f"{HEAD}  z = convert_float8({'|'.join(loads)});")
    assert f"convert_float8((uchar8)({', '.join(f'x[v_.s{i}]' for i in range(8))}));" in text


def test_one_value_in_all_four_is_a_vector_of_its_own_type() -> None:
    four = "({}[k], {}[k], {}[k], {}[k])"
    text = corrected(f"{HEAD}  z = convert_int4(((uint){four.replace('{}', 'x')}));")
    assert "convert_int4(((uchar4)(x[k])));" in text
    numbers = f"{HEAD}  z = (uint){four.replace('{}', 'y')};"
    assert corrected(numbers) == numbers
