"""OpenCL source as a compiler for a CPU wants it: vector loads and stores, and the width of indices.

TVM writes ``vload16``; PoCL builds it from eight-byte loads, which its compiler often does not put together again.  A
load through a pointer to a vector of lower alignment means the same and is one instruction.  And TVM computes indices in
32 bits, which costs a sign extension for each address; from a 64-bit group number on, none.  For every device that is not
an x86 or Arm CPU the text means what TVM wrote.
"""

from __future__ import annotations

import re

import tvm

from tvm_codl.kernels.target import GPU_KEY

_PREAMBLE = """\
#ifndef CODL_VECTORS
#define CODL_VECTORS
#if defined(__clang__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(__ANDROID__)
typedef long codl_index;
{direct}#else
typedef int codl_index;
{plain}#endif
#endif
"""
_DIRECT = """\
typedef float{n} codl_float{n} __attribute__((aligned(4)));
#define codl_load{n}(...) (*(const __global codl_float{n}*)(__VA_ARGS__))
#define codl_store{n}(value, ...) (*(__global codl_float{n}*)(__VA_ARGS__) = (value))
#define codl_take{n}(...) (*(const codl_float{n}*)(__VA_ARGS__))
#define codl_put{n}(value, ...) (*(codl_float{n}*)(__VA_ARGS__) = (value))
"""
_PLAIN = """\
#define codl_load{n}(...) vload{n}(0, __VA_ARGS__)
#define codl_store{n}(value, ...) vstore{n}(value, 0, __VA_ARGS__)
#define codl_take{n}(...) vload{n}(0, __VA_ARGS__)
#define codl_put{n}(value, ...) vstore{n}(value, 0, __VA_ARGS__)
"""
_WIDTHS = (2, 4, 8, 16)
_PARAMETER = re.compile(r"__global float\* restrict (\w+)")
_PRIVATE = re.compile(r"^ +float (\w+)\[\d+\];$", re.MULTILINE)
_GROUP = re.compile(r"convert_int\(get_group_id\((\d)\)\)")
# Where an index is an argument of an overloaded function or an element of a vector, its type decides what is called.
_TYPED = re.compile(r"\bselect\(|\(u?int\d*\)|\bint\d+ ")
_LOAD = re.compile(r"\bvload(2|4|8|16)\(0, (\w+) \+ ")
_STORE = re.compile(r"\bvstore(2|4|8|16)\((.*), 0, (\w+) \+ (.*)\);$", re.MULTILINE)


def direct_vectors(source: str) -> str:
    """``source`` with the vector accesses to its float parameters and private arrays written as casts."""
    words = dict.fromkeys(_PRIVATE.findall(source), ("codl_take", "codl_put"))
    words |= dict.fromkeys(_PARAMETER.findall(source), ("codl_load", "codl_store"))

    def load(found: re.Match[str]) -> str:
        width, name = found.groups()
        return f"{words[name][0]}{width}({name} + " if name in words else found.group()

    def store(found: re.Match[str]) -> str:
        width, value, name, index = found.groups()
        # Parentheses: the value may hold commas that the macro would take for its own.
        return f"{words[name][1]}{width}(({value}), {name} + {index});" if name in words else found.group()

    text = _STORE.sub(store, _LOAD.sub(load, source))
    if not _TYPED.search(source):
        text = _GROUP.sub(r"(codl_index)get_group_id(\1)", text)
    if text == source:
        return source
    direct, plain = ("".join(part.format(n=n) for n in _WIDTHS) for part in (_DIRECT, _PLAIN))
    return _PREAMBLE.format(direct=direct, plain=plain) + text


@tvm.register_func("tvm_callback_opencl_postproc", override=True)
def _rewrite(source: str, target: tvm.target.Target) -> str:
    return direct_vectors(source) if GPU_KEY in target.keys else source
