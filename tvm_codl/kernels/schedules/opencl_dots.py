"""OpenCL functions that add products of 8-bit integers to 32-bit sums, with what the device's compiler offers.

A CPU that plays a GPU has the instructions of CPUs; GPUs have extensions for integer dot products, or plain arithmetic.
"""

from __future__ import annotations

import re

#: ``sums`` in registers, ``values`` of a type and ``step`` of them, by ``lanes`` weights each.
_NAME = re.compile(r"\bcodl_dot_(u?)(char|short)_(\d)x(\d+)\(")

_FOUR_STORED = re.compile(r"\bvstore4\(\(convert_(u?)int\(")

_FUNCTION = """\
#ifndef {name}_DEFINED
#define {name}_DEFINED
inline void {name}(int* sums, const __global {type}* values, const __global char* weights) {{
{body}}}
#endif
"""
_PAIRS = """\
#if defined({feature}) && defined(__clang__)
  typedef int lanes_t __attribute__((ext_vector_type({lanes}), aligned(4)));
  typedef char chars_t __attribute__((ext_vector_type({all}), aligned(1)));
  typedef short shorts_t __attribute__((ext_vector_type({all})));
  typedef int pair_t __attribute__((aligned(2)));
  const lanes_t pair = (lanes_t)(*(const __global pair_t*)values);
  const shorts_t wide = __builtin_convertvector(*(const __global chars_t*)weights, shorts_t);
  *(lanes_t*)sums += {builtin}(__builtin_astype(pair, shorts_t), wide);
#else
{plain}#endif
"""
#: As text, since PoCL's LLVM may not know that its processor has the instruction; only a CPU that has it calls this.
_FOURS = """\
#if defined(__AVX512VL__) && defined(__clang__)
  typedef int lanes_t __attribute__((ext_vector_type({lanes}), aligned(4)));
  typedef int from_t __attribute__((ext_vector_type({lanes}), aligned(1)));
  typedef int four_t __attribute__((aligned(1)));
  const lanes_t four = (lanes_t)(*(const __global four_t*)values);
  const lanes_t by = *(const __global from_t*)weights;
  lanes_t sum = *(lanes_t*)sums;
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(four), "v"(by));
  *(lanes_t*)sums = sum;
#else
{plain}#endif
"""
_BY_EXTENSION = """\
  const char4 value = vload4(0, values);
#if defined(__opencl_c_integer_dot_product_input_4x8bit) || defined(cl_khr_integer_dot_product)
{khronos}#elif defined(cl_arm_integer_dot_product_accumulate_int8)
{arm}#else
{plain}#endif
"""
#: By lanes of int32: the feature with vectors as wide, and the instruction on pairs.
_MULTIPLY_PAIRS = {
    4: ("__SSE2__", "__builtin_ia32_pmaddwd128"),
    8: ("__AVX2__", "__builtin_ia32_pmaddwd256"),
    16: ("__AVX512BW__", "__builtin_ia32_pmaddwd512"),
}


def name_of(reads: str, step: int, lanes: int) -> str:
    """The function for values of NumPy's type ``reads``."""
    kind = {"int16": "short", "int8": "char", "uint8": "uchar"}[reads]
    return f"codl_dot_{kind}_{step}x{lanes}"


#: A load of eight bits among those that TVM puts together, and all of them; what is declared, and arrays by type.
_SHIFTED = r"\(\(0x000000ff << \d+\) & \(({}\w+\[[^\[\]]*\]) << \d+\)\)"
_BYTE = re.compile(_SHIFTED.format(""))
_BYTES = re.compile(rf"{_SHIFTED.format('?:')}(?:\|{_SHIFTED.format('?:')})+")
#: One of them in all four.
_SPREAD = re.compile(r"\((u?)int\)\(((\w+)\[[^\[\]]*\]), \2, \2, \2\)")
_DECLARED = re.compile(r"^__kernel [^{;]*;$", re.MULTILINE)
_HELD = re.compile(r"\b(u?char)\*? (?:restrict )?(\w+)")


def corrected(source: str) -> str:
    """``source`` with what TVM writes wrong in kernels of integers.

    It prints seven digits of a constant, and so another number than 1.5 * 2**23, which is added to round half to even.
    Four 8-bit integers it takes for one of 32 bits, but stores a vector.  Of more that lie apart it makes one number too.
    """
    text = source.replace("1.258291e+07f", "12582912.0f")
    types = {name: kind for kind, name in _HELD.findall(_DECLARED.sub("", text))}

    def vector(match: re.Match[str]) -> str:
        loads = _BYTE.findall(match[0])
        kind = types[loads[0].partition("[")[0]]
        return f"({kind}{len(loads)})({', '.join(loads)})"

    def spread(match: re.Match[str]) -> str:
        return f"({match[1]}char4)({match[2]})" if match[3] in types else match[0]

    text = _SPREAD.sub(spread, _BYTES.sub(vector, text))
    return _FOUR_STORED.sub(lambda match: f"vstore4((convert_{'uchar4' if match[1] else 'char4'}(", text)


def with_dots(source: str) -> str:
    """``source`` with the functions that it calls before it."""
    calls = dict.fromkeys(_NAME.findall(source))
    return (
        "".join(_function(f"{unsigned}{kind}", int(step), int(lanes)) for unsigned, kind, step, lanes in calls) + source
    )


def _function(kind: str, step: int, lanes: int) -> str:
    plain = "".join(
        f"  sums[{i}] += " + " + ".join(f"values[{k}] * weights[{i * step + k}]" for k in range(step)) + ";\n"
        for i in range(lanes)
    )
    if kind == "short" and step == 2:
        feature, builtin = _MULTIPLY_PAIRS[lanes]
        body = _PAIRS.format(feature=feature, builtin=builtin, lanes=lanes, all=2 * lanes, plain=plain)
    elif kind == "uchar" and step == 4:
        body = _FOURS.format(lanes=lanes, plain=plain)
    elif kind == "char" and step == 4:
        four = "vload4({i}, weights)"
        body = _BY_EXTENSION.format(
            khronos="".join(f"  sums[{i}] += dot(value, {four.format(i=i)});\n" for i in range(lanes)),
            arm="".join(f"  sums[{i}] = arm_dot_acc(value, {four.format(i=i)}, sums[{i}]);\n" for i in range(lanes)),
            plain=plain.replace("values[", "value.s").replace("] * weights", " * weights"),
        )
    else:
        body = plain
    name = f"codl_dot_{kind}_{step}x{lanes}"
    return _FUNCTION.format(name=name, type=kind, body=body)
