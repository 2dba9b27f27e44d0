"""Which instruction of a CPU adds products of 8-bit integers to 32-bit sums.  Imports no TVM."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

#: Weights are int8.  ``vpdpbusd``, ``usdot``: four uint8 values to a sum; ``sdot``: four int8 values.  ``pmaddwd``: two
#: int16 values; ``multiply``: one.  ``dot``: four int8 values, on a GPU.
Name = Literal["dot", "vpdpbusd", "usdot", "sdot", "pmaddwd", "multiply"]

#: LLVM's processors and features.  Their names must do where there is no LLVM.
_VNNI = re.compile(
    r"\+avx512vnni|\+avxvnni\b|(cascade|cooper|ice|tiger|rocket|alder|arrow|lunar|meteor|panther|raptor|wildcat|nova)lake"
    r"|(diamond|emerald|granite|sapphire).?rapids|gracemont|grandridge|(clearwater|sierra)forest|znver[4-9]"
)
#: AVX-512 whose vectors of 16 bits are no wider than before.
_NARROW = re.compile(r"kn[lm]\b|mic_avx512")
_WIDE = re.compile(r"\+avx512bw|-mcpu=(?!kn|mic)\S")
_I8MM = re.compile(
    r"\+i8mm|\+v(8\.[6-9]|9\.[1-9])a|ampere1|apple-(a1[5-9]|m[45])|c1-|cortex-a(320|5[12]0|7[12]\d)|cortex-x([2-4]|925)"
    r"|monaka|gb10|grace\b|neoverse-(512tvb|n[23]|v)|olympus|oryon"
)
_DOTPROD = re.compile(
    r"\+dotprod|\+v8\.[4-9]a|apple-(a1[34]|m[1-3])|cortex-a(55|65|7[5-8])|cortex-r82|cortex-x1|exynos-m[45]"
    r"|neoverse-(e1|n1)|saphira|tsv110"
)


#: Arm has 32 vectors; LLVM keeps addresses' loads in flight in some of them, and spills where sums take more than these.
_ARM = 28


class Dot(msgspec.Struct, frozen=True):
    """``step``: neighbouring values that one instruction takes for each sum.  ``reads``: their type, to which data is
    brought before.  ``registers``: vectors that the processor keeps."""

    name: Name
    step: int
    reads: Literal["uint8", "int8", "int16"]
    registers: int

    @property
    def vectors(self) -> int:
        """Registers for sums, weights and a value; a product that is not added at once takes one too."""
        return self.registers - (self.name in ("pmaddwd", "multiply"))

    @property
    def shift(self) -> int:
        """What is added to values of the other 8-bit type so that they are of the type that it reads."""
        return {"uint8": 128, "int8": -128, "int16": 0}[self.reads]


#: What OpenCL's extensions compute on phones' GPUs.
GPU_DOT = Dot("dot", 4, "int8", 32)


def dot_of(llvm: str, arm: bool, lanes: int, dtype: str) -> Dot:
    """For data of ``dtype``, int8 or uint8, on a target like ``llvm -mcpu=haswell`` with vectors of ``lanes`` sums."""
    words = " ".join(word for word in llvm.split() if word.startswith(("-mcpu=", "-mattr=")))
    if arm:
        if _I8MM.search(words):
            return Dot("usdot", 4, "uint8", _ARM) if dtype == "uint8" else Dot("sdot", 4, "int8", _ARM)
        return Dot("sdot", 4, "int8", _ARM) if _DOTPROD.search(words) else Dot("multiply", 1, "int16", _ARM)
    registers = 32 if lanes == 16 else 16
    if _VNNI.search(words):
        return Dot("vpdpbusd", 4, "uint8", registers)
    if lanes == 16 and (_NARROW.search(words) or not _WIDE.search(words)):
        return Dot("multiply", 1, "int16", registers)
    return Dot("pmaddwd", 2, "int16", registers)
