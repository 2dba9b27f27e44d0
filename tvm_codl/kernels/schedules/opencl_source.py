"""OpenCL source that compiles well: for CPUs vector loads and stores and 64-bit indices, for other devices aligned ones.

PoCL builds ``vload16`` from eight-byte loads, which LLVM often does not merge; a load through a pointer to a less aligned
vector is one instruction.  PoCL calls its functions, ``min`` and ``max`` too, which it does not inline: here they are
expressions.  TVM's 32-bit indices cost a sign extension per address; a 64-bit group number avoids it.  On
devices other than x86 and Arm CPUs the preamble's macros give back what TVM wrote.

``vload4`` and ``vstore4`` promise no alignment, and compilers for GPUs with memory of their own then load and store number by
number.  TVM writes them only where the index is a multiple of the width, and buffers begin at more than that.
"""

from __future__ import annotations

import re

import tvm

from tvm_codl.kernels.schedules.opencl_dots import corrected, with_dots
from tvm_codl.kernels.schedules.opencl_pointers import advancing
from tvm_codl.kernels.target import GPU_KEY, has_local_memory, is_phone

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
_NAMES = re.compile(r"(codl_(?:load|store|take|put))\{n\}")
#: The same for integers, by their OpenCL type.
_INTEGERS = """\
#ifndef CODL_VECTORS_{kind}
#define CODL_VECTORS_{kind}
#if defined(__clang__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(__ANDROID__)
{direct}#else
{plain}#endif
#endif
"""
_DIRECT_INTEGERS = _DIRECT.replace("float{n}", "{kind}{n}").replace("(4)", "({bytes})")
_DIRECT_INTEGERS = _NAMES.sub(r"\1{n}_{kind}", _DIRECT_INTEGERS)
_PLAIN_INTEGERS = _NAMES.sub(r"\1{n}_{kind}", _PLAIN)
_LEAST = """\
#ifndef CODL_LEAST
#define CODL_LEAST
#if defined(__clang__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(__ANDROID__)
#define min(a, b) ({ __auto_type codl_a = (a); __auto_type codl_b = (b); codl_b < codl_a ? codl_b : codl_a; })
#define max(a, b) ({ __auto_type codl_a = (a); __auto_type codl_b = (b); codl_a < codl_b ? codl_b : codl_a; })
#endif
#endif
"""
_COMPARES = re.compile(r"\b(min|max)\(")
_ALIGNED = """\
#define codl_aligned4(...) (*(const __global float4*)(__VA_ARGS__))
#define codl_put_aligned4(value, ...) (*(__global float4*)(__VA_ARGS__) = (value))
"""
_WIDTHS = (2, 4, 8, 16)
_BYTES = {"float": 4, "int": 4, "short": 2, "char": 1, "uchar": 1}
_PARAMETER = re.compile(rf"__global ({'|'.join(_BYTES)})\* restrict (\w+)")
_PARAMETERS = re.compile(r"__kernel void \w+\(([^;{]*)\) \{")
_PRIVATE = re.compile(rf"^ +({'|'.join(_BYTES)}) (\w+)\[\d+\];$", re.MULTILINE)
_GROUP = re.compile(r"convert_int\(get_group_id\((\d)\)\)")
# As an argument of an overloaded function or an element of a vector, an index must keep its type.
_TYPED = re.compile(r"\bselect\(|\(u?int\d*\)|\bint\d+ ")
_LOAD = re.compile(r"\bvload(2|4|8|16)\(0, (\w+) \+ ")
_STORE = re.compile(r"\bvstore(2|4|8|16)\((.*), 0, (\w+) \+ (.*)\);$", re.MULTILINE)

#: By lanes, a vector of one number in all of them: TVM writes it once for each.
_BROADCASTS = {n: re.compile(rf"\(\(float{n}\)\((.+?)(?:, \1){{{n - 1}}}\)\)") for n in _WIDTHS}
_VECTORS = re.compile(r"^ +float4 (\w+)\[\d+\];$", re.MULTILINE)
_PUT_FOUR = re.compile(r"^ *(?:codl_put4\(.*, |vstore4\(.*, 0, )(\w+) \+ (\d+)\);$", re.MULTILINE)
_FLOATS = re.compile(r"^ +(float|half) (\w+)\[(\d+)\];$", re.MULTILINE)
#: What the schedule of a phone's inner kernel leaves in its source (a pragma ``import_c``): its group.
GROUP_NOTE = re.compile(r"// codl group (\d+) (\d+) (\d+)\n")
_DEFINITION = re.compile(r"^(__kernel) (void [^;{]*\{)$", re.MULTILINE)


def _parameters(source: str) -> dict[str, str]:
    """Types by name, of the kernel that is defined: others of the module are declared, with parameters of the same names and
    other types."""
    found = [pair for parameters in _PARAMETERS.findall(source) for pair in _PARAMETER.findall(parameters)]
    return {name: kind for kind, name in found}


def aligned_vectors(source: str) -> str:
    """``source`` with the vector loads and stores of its float parameters made through pointers to vectors."""
    names = {name for name, kind in _parameters(source).items() if kind == "float"}

    def load(match: re.Match[str]) -> str:
        width, name = match.groups()
        return f"codl_aligned4({name} + " if name in names and width == "4" else match.group()

    def store(match: re.Match[str]) -> str:
        width, value, name, index = match.groups()
        # Parentheses keep commas in the value from splitting the macro's arguments.
        aligned = f"codl_put_aligned4(({value}), {name} + {index});"
        return aligned if name in names and width == "4" else match.group()

    text = _STORE.sub(store, _LOAD.sub(load, source))
    return text if text == source else _ALIGNED + text


def used_sums(source: str) -> str:
    """``source`` without the sums that nothing reads.

    A work-item's blocks of channels lie a group apart, and TVM computes all between them: with two blocks of 16 work-items
    17 vectors for two.  NVIDIA's compiler finds that out, but takes ten seconds a kernel for it.
    """
    for name in _VECTORS.findall(source):
        element, stored = re.compile(rf"\b{name}\[(\d+)\]"), re.compile(rf"^ *{name}\[(\d+)\] = ")
        if len(re.findall(rf"\b{name}\b", source)) != len(element.findall(source)):
            continue  # an index is computed
        lines = [(line, stored.match(line)) for line in source.split("\n")]
        read: set[str] = set()
        for line, own in lines:
            read.update(index for index in element.findall(line) if own is None or index != own[1])
        source = "\n".join(line for line, own in lines if own is None or own[1] in read)
    return source


def short_broadcasts(source: str) -> str:
    """``source`` with what fills all lanes of a vector written once: compilers read, and load, it once then."""
    for lanes, broadcast in _BROADCASTS.items():
        source = broadcast.sub(rf"((float{lanes})(\1))", source)
    return source


def direct_vectors(source: str) -> str:
    """``source`` with the vector accesses to its parameters and private arrays written as casts."""
    words = {name: (kind, "codl_take", "codl_put") for kind, name in _PRIVATE.findall(source)}
    words |= {name: (kind, "codl_load", "codl_store") for name, kind in _parameters(source).items()}
    kinds: set[str] = set()

    def word(name: str, width: str, place: int) -> str:
        kind = words[name][0]
        kinds.add(kind)
        return f"{words[name][place]}{width}" + (f"_{kind}" if kind != "float" else "")

    def load(match: re.Match[str]) -> str:
        width, name = match.groups()
        return f"{word(name, width, 1)}({name} + " if name in words else match.group()

    def store(match: re.Match[str]) -> str:
        width, value, name, index = match.groups()
        # Parentheses keep commas in the value from splitting the macro's arguments.
        return f"{word(name, width, 2)}(({value}), {name} + {index});" if name in words else match.group()

    text = _STORE.sub(store, _LOAD.sub(load, source))
    if not _TYPED.search(source):
        text = _GROUP.sub(r"(codl_index)get_group_id(\1)", text)
    least = _LEAST if _COMPARES.search(source) else ""
    if text == source:
        return least + source
    head = _filled(_PREAMBLE, _DIRECT, _PLAIN)
    for kind in sorted(kinds - {"float"}):
        head += _filled(_INTEGERS, _DIRECT_INTEGERS, _PLAIN_INTEGERS, kind=kind, bytes=_BYTES[kind])
    return head + least + text


def _filled(block: str, direct: str, plain: str, **words: object) -> str:
    every = ("".join(part.format(n=n, **words) for n in _WIDTHS) for part in (direct, plain))
    return block.format(**dict(zip(("direct", "plain"), every, strict=True)), **words)


def vectors_of_four(source: str) -> str:
    """``source`` whose private arrays, where vectors of four fill them, are arrays of such vectors.

    Compilers need not find out then that all their elements can be registers.
    """
    for kind, name, size in _FLOATS.findall(source):
        elements = re.findall(rf"\b{name}\[\d+\]", source)
        puts = [int(at) for found, at in _PUT_FOUR.findall(source) if found == name]
        uses = len(re.findall(rf"\b{name}\b", source))
        if puts and int(size) % 4 == 0 and uses == len(elements) + len(puts) and not any(at % 4 for at in puts):
            source = _as_vectors(source, kind, name, int(size))
    return source


def _as_vectors(source: str, kind: str, name: str, size: int) -> str:
    def element(match: re.Match[str]) -> str:
        return f"{name}[{int(match[1]) // 4}].s{int(match[1]) % 4}"

    def put(match: re.Match[str]) -> str:
        return f"{match[1]}{name}[{int(match[4]) // 4}] = {match[2] or match[3]};"

    declaration, stored = (
        f"{kind} {name}[{size}];",
        rf"^( *)(?:codl_put4\((.*), |vstore4\((.*), 0, ){name} \+ (\d+)\);$",
    )
    before, after = source.split(declaration)
    after = re.sub(stored, put, re.sub(rf"\b{name}\[(\d+)\]", element, after), flags=re.MULTILINE)
    return f"{before}{kind}4 {name}[{size // 4}];{after}"


def sized(source: str) -> str:
    """``source`` whose kernel says the group that it is launched with, of which its schedule left a note."""
    group = ", ".join(GROUP_NOTE.findall(source)[0])
    attribute = f"__attribute__((reqd_work_group_size({group})))"
    return _DEFINITION.sub(rf"\1 {attribute} \2", GROUP_NOTE.sub("", source))


@tvm.register_func("tvm_callback_opencl_postproc", override=True)
def _rewrite(source: str, target: tvm.target.Target) -> str:
    if GPU_KEY not in target.keys:
        return source
    source = with_dots(corrected(source))
    if has_local_memory(target):
        return aligned_vectors(used_sums(source))
    text = direct_vectors(source if is_phone(target) else short_broadcasts(source))
    return sized(advancing(vectors_of_four(text), "adreno" in target.keys)) if GROUP_NOTE.search(text) else text
