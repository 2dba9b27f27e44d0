"""Checks a library file before it is sent to a phone.

A loader maps a library's segments without checking the file's length, so a truncated library would kill the phone's
session with SIGBUS.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from pathlib import Path

import msgspec
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_DT_FLAGS

from tvm_codl.errors import CodlError, UserError
from tvm_codl.runtime.platforms import PAGE_BYTES

#: ``e_machine`` by the processor's name in ``uname``.
MACHINES = {"x86_64": "EM_X86_64", "amd64": "EM_X86_64", "aarch64": "EM_AARCH64", "arm64": "EM_AARCH64"}
#: The symbol of the imported modules: the co-executor's program, the weights and the OpenCL kernels.
MODULES = b"__tvm_dev_mblob"
#: The libraries that a model's library may need on Android.
ANDROID_LIBRARIES = frozenset(("libc.so", "libm.so", "libdl.so", "liblog.so"))

_ELF64_LITTLE = b"\x7fELF\x02\x01"
_NEXT = "tvm-codl build MODEL -o model.so"


class Linked(msgspec.Struct, frozen=True):
    """What a library asks of its loader: the libraries it needs, whether its code must be written to, and the smallest
    alignment of its segments, in bytes."""

    needed: tuple[str, ...]
    text_relocations: bool
    alignment: int


def check_library(path: Path, arch: str) -> None:
    """Raises :class:`UserError` for a file that a phone of ``arch`` (as in its profile) must not load.

    That is a file which is no 64-bit ELF shared library, is for another processor, ends before its headers, segments or
    sections do, or carries no TVM modules.
    """
    with _opened(path) as (elf, data):
        wanted = MACHINES.get(arch)
        if wanted is not None and elf["e_machine"] != wanted:
            evidence = f"ELF machine {elf['e_machine']}, the phone is {arch} ({wanted})"
            raise _refused(path, "was built for another processor than the phone's", evidence)
        structs, segments, sections = elf.structs, elf["e_phnum"], elf["e_shnum"]
        if elf["e_phentsize"] != structs.Elf_Phdr.sizeof() or not segments:
            raise _refused(path, "is damaged", f"{segments} segments of {elf['e_phentsize']} bytes")
        if sections and elf["e_shentsize"] != structs.Elf_Shdr.sizeof():
            raise _refused(path, "is damaged", f"{sections} sections of {elf['e_shentsize']} bytes")
        parts = [
            ("the segment table", elf["e_phoff"], elf["e_phentsize"] * segments),
            ("the section table", elf["e_shoff"], elf["e_shentsize"] * sections),
        ]
        _check_parts(path, parts, len(data))
        headers = [segment.header for segment in elf.iter_segments()]
        for index, header in enumerate(headers):
            if header.p_type == "PT_LOAD" and header.p_filesz > header.p_memsz:
                evidence = f"segment {index}: {header.p_filesz} bytes in the file, {header.p_memsz} in memory"
                raise _refused(path, "is damaged", evidence)
        if not any(header.p_type == "PT_LOAD" for header in headers):
            raise _refused(path, "is no shared library", "it has nothing to load")
        parts = [(f"segment {index}", header.p_offset, header.p_filesz) for index, header in enumerate(headers)]
        for index, section in enumerate(elf.iter_sections()):
            if section["sh_type"] != "SHT_NOBITS":
                parts.append((f"section {index}", section["sh_offset"], section["sh_size"]))
        _check_parts(path, parts, len(data))
        if data.find(MODULES, 0) < 0:
            raise _refused(path, "was not built by tvm_codl", f"it has no symbol {MODULES.decode()}: nothing to run")


def read_linked(path: Path) -> Linked:
    """What the library at ``path`` asks of its loader.  Raises :class:`UserError` where it is no whole shared library."""
    with _opened(path) as (elf, _):
        tags = [tag for segment in elf.iter_segments("PT_DYNAMIC") for tag in segment.iter_tags()]  # type: ignore[attr-defined]
        needed = tuple(str(tag.needed) for tag in tags if tag.entry.d_tag == "DT_NEEDED")
        flags = [tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS"]
        relocations = any(tag.entry.d_tag == "DT_TEXTREL" for tag in tags) or any(
            value & ENUM_DT_FLAGS["DF_TEXTREL"] for value in flags
        )
        alignment = min((int(segment["p_align"]) for segment in elf.iter_segments("PT_LOAD")), default=0)
        return Linked(needed, relocations, alignment)


def check_android(path: Path) -> None:
    """Raises :class:`UserError` for a library that Android's loader would refuse.

    It may need only libraries that every Android has and lets applications load, must not write into its code, and must
    be aligned for pages of 16 KiB.
    """
    linked = read_linked(path)
    unavailable = sorted(set(linked.needed) - ANDROID_LIBRARIES)
    remedy = "name an NDK of version 23 or newer: export ANDROID_NDK_HOME=/path/to/android-ndk-r27"
    if unavailable:
        raise UserError(f"{path.name} needs libraries that Android does not have", ", ".join(unavailable), remedy)
    if linked.text_relocations:
        raise UserError(f"{path.name} has text relocations, which Android refuses", "readelf -d shows TEXTREL", remedy)
    if linked.alignment < PAGE_BYTES:
        evidence = f"its segments are aligned to {linked.alignment} bytes, pages may have {PAGE_BYTES}"
        raise UserError(f"{path.name} does not load on every Android", evidence, remedy)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[ELFFile, mmap.mmap]]:
    """A shared library and its bytes.  Whatever goes wrong while the block reads them becomes a :class:`UserError`."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:6] != _ELF64_LITTLE:
                raise _refused(path, "is no 64-bit little-endian shared library", f"it begins with {data[:8]!r}")
            elf = ELFFile(data)  # type: ignore[arg-type]
            if elf["e_type"] != "ET_DYN":
                raise _refused(path, "is no shared library", f"ELF type {elf['e_type']}, a shared library has ET_DYN")
            yield elf, data
    except CodlError:
        raise
    except OSError as error:
        raise UserError(f"the library {path} cannot be read", error.strerror or str(error), _NEXT) from error
    except Exception as error:  # a damaged file makes pyelftools raise errors of many kinds
        raise _refused(path, "is cut off or damaged", f"{type(error).__name__}: {error}") from error


def _check_parts(path: Path, parts: list[tuple[str, int, int]], size: int) -> None:
    """Name, offset and bytes of each part: all must lie inside the file."""
    for name, offset, length in parts:
        if offset + length > size:
            evidence = f"{name} ends at byte {offset + length}, the file has {size} bytes"
            raise _refused(path, "is cut off or damaged", evidence)


def _refused(path: Path, what: str, evidence: str) -> UserError:
    return UserError(f"{path.name} {what}", evidence, _NEXT)
