"""What tells a GPU's kernel from all others: its source, whatever it is called, and its work-group."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tvm_codl.build.launches import Launch

_SECTION = re.compile(r"^// Function: (\w+)$", re.MULTILINE)
#: TVM declares all kernels of a library in front of each.
_DECLARATION = re.compile(r"^__kernel void [^{;]*;\n", re.MULTILINE)
#: The first kernel of a function, and those behind it.
_NUMBERED = re.compile(r"(?P<function>\w+)_kernel(?:_(?P<number>\d+))?")


def contents(library: Any, launches: Mapping[str, Sequence[Launch]]) -> tuple[str, ...]:
    """A digest of each OpenCL kernel of a built library (a TVM module), sorted; ``launches`` by function."""
    return tuple(sorted({_digest(*each, launches) for each in _sections(library)}))


def _sections(library: Any) -> Iterator[tuple[str, str]]:
    """(name, source) of each kernel."""
    for module in library.imported_modules:
        if module.type_key == "opencl":
            _, *parts = _SECTION.split(module.get_source())
            yield from zip(parts[::2], parts[1::2], strict=True)
        yield from _sections(module)


def _digest(name: str, source: str, launches: Mapping[str, Sequence[Launch]]) -> str:
    text = re.sub(rf"\b{name}\b", "kernel", _DECLARATION.sub("", source))
    match = _NUMBERED.fullmatch(name)
    groups = launches.get(match["function"], ()) if match else ()
    number = int(match["number"] or 0) if match else 0
    group = groups[number].work_group if number < len(groups) else 0
    return hashlib.sha256(f"{text}|{group}".encode()).hexdigest()[:16]
