"""What tells a GPU's kernel from all others: its source, whatever it is called, and its work-group."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from tvm_codl.build.kernel import Kernel

_SECTION = re.compile(r"^// Function: (\w+)$", re.MULTILINE)
#: TVM declares all kernels of a function in front of each.
_DECLARATION = re.compile(r"^__kernel void [^{;]*;\n", re.MULTILINE)
#: The first kernel of a function, and those behind it.
_NUMBERED = re.compile(r"(?P<function>\w+)_kernel(?:_(?P<number>\d+))?")


def contents(kernels: Iterable[Kernel]) -> tuple[str, ...]:
    """A digest of each OpenCL kernel, sorted."""
    found = set()
    for kernel in kernels:
        _, *parts = _SECTION.split(kernel.source)
        found |= {_digest(name, source, kernel) for name, source in zip(parts[::2], parts[1::2], strict=True)}
    return tuple(sorted(found))


def _digest(name: str, source: str, kernel: Kernel) -> str:
    text = re.sub(rf"\b{name}\b", "kernel", _DECLARATION.sub("", source))
    match = _NUMBERED.fullmatch(name)
    number = int(match["number"] or 0) if match else 0
    group = kernel.launches[number].work_group if number < len(kernel.launches) else 0
    return hashlib.sha256(f"{text}|{group}".encode()).hexdigest()[:16]
