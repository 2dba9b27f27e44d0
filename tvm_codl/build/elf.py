"""Whether a file is a whole library of ours for a phone, before it is sent there.

A loader maps a library's segments without looking whether the file is long enough, so that a truncated library kills
the phone's session with SIGBUS; here it is a sentence.  Layouts: System V ABI, chapter 4 (object files) and 5 (loading).
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import msgspec

from tvm_codl.errors import UserError
from tvm_codl.runtime.platforms import PAGE_BYTES

#: ``e_machine`` by the name that a phone's ``uname`` gives its processor.
MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183}
#: The symbol of the imported modules: the co-executor's program, the weights and the OpenCL kernels.
MODULES = b"__tvm_dev_mblob"
#: What a model's library may need on Android.
ANDROID_LIBRARIES = frozenset(("libc.so", "libm.so", "libdl.so", "liblog.so"))

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SHARED, _LOAD, _DYNAMIC, _NO_BITS = 3, 1, 2, 8
_ENTRY = struct.Struct("<qQ")
# Tags of dynamic entries, and the flag among DF_FLAGS.
_NEEDED, _STRINGS, _TEXT_RELOCATIONS, _FLAGS, _FLAG_TEXT_RELOCATIONS = 1, 5, 22, 30, 4
_NEXT = "tvm-codl build MODEL -o model.so"

Bytes = bytes | mmap.mmap


class Linked(msgspec.Struct, frozen=True):
    """What a loader is asked by a library: the libraries it needs, whether it must write into code, and to how many
    bytes its segments are aligned at least."""

    needed: tuple[str, ...]
    text_relocations: bool
    alignment: int


class _Header(msgspec.Struct, frozen=True):
    """Where the two tables of an ELF file lie, in bytes."""

    kind: int
    machine: int
    segments: int
    segment_size: int
    segment_count: int
    sections: int
    section_size: int
    section_count: int


def check_library(path: Path, arch: str) -> None:
    """Raises :class:`UserError` for a file that a phone of ``arch`` (as in its profile) must not be asked to load.

    That is one that is no 64-bit ELF shared library, is for another processor, ends before its headers, segments or
    sections do, or carries no TVM modules.
    """
    try:
        with path.open("rb") as file:
            if path.stat().st_size < _HEADER.size:
                raise _refused(path, "is no shared library", f"it has {path.stat().st_size} bytes")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                _check(path, data, arch)
    except OSError as error:
        raise UserError(f"the library {path} cannot be read", error.strerror or str(error), _NEXT) from error


def read_linked(path: Path) -> Linked:
    """What the library at ``path`` asks of its loader.  Raises :class:`UserError` where it is no whole shared library."""
    data = path.read_bytes()
    if len(data) < _HEADER.size:
        raise _refused(path, "is no shared library", f"it has {len(data)} bytes")
    header = _header(path, data)
    try:
        return _read_linked(data, header)
    except (struct.error, ValueError) as error:
        raise _refused(path, "is damaged", f"its table of needed libraries cannot be read: {error}") from error


def _read_linked(data: bytes, header: _Header) -> Linked:
    places = [header.segments + i * header.segment_size for i in range(header.segment_count)]
    segments = [_SEGMENT.unpack_from(data, place) for place in places]
    loads = [(s[2], s[3], s[5]) for s in segments if s[0] == _LOAD]  # offset in the file, address, bytes

    def place_of(address: int) -> int:
        for offset, start, size in loads:
            if start <= address < start + size:
                return offset + address - start
        raise ValueError(f"address {address:#x} is in no segment")

    entries: list[tuple[int, int]] = []
    for kind, _, offset, _, _, size, _, _ in segments:
        if kind == _DYNAMIC:
            entries += [_ENTRY.unpack_from(data, offset + i) for i in range(0, size - _ENTRY.size + 1, _ENTRY.size)]
    values = dict(entries)
    names = []
    for tag, value in entries:
        if tag == _NEEDED:
            start = place_of(values.get(_STRINGS, 0)) + value
            names.append(data[start : data.index(b"\0", start)].decode())
    relocations = _TEXT_RELOCATIONS in values or bool(values.get(_FLAGS, 0) & _FLAG_TEXT_RELOCATIONS)
    return Linked(tuple(names), relocations, min((s[7] for s in segments if s[0] == _LOAD), default=0))


def check_android(path: Path) -> None:
    """Raises :class:`UserError` for a library that Android's loader would refuse, on the phone and late.

    It may need only what every Android has and lets applications load, must not write into its code, and must be aligned
    for pages of 16 KiB.
    """
    linked = read_linked(path)
    strange = sorted(set(linked.needed) - ANDROID_LIBRARIES)
    remedy = "name an NDK of version 23 or newer: export ANDROID_NDK_HOME=/path/to/android-ndk-r27"
    if strange:
        raise UserError(f"{path.name} needs libraries that Android does not have", ", ".join(strange), remedy)
    if linked.text_relocations:
        raise UserError(f"{path.name} has text relocations, which Android refuses", "readelf -d shows TEXTREL", remedy)
    if linked.alignment < PAGE_BYTES:
        evidence = f"its segments are aligned to {linked.alignment} bytes, pages may have {PAGE_BYTES}"
        raise UserError(f"{path.name} does not load on every Android", evidence, remedy)


def _check(path: Path, data: Bytes, arch: str) -> None:
    header = _header(path, data)
    wanted = MACHINES.get(arch)
    if wanted is not None and header.machine != wanted:
        raise _refused(
            path,
            "was built for another processor than the phone's",
            f"ELF machine {header.machine}, the phone is {arch} ({wanted})",
        )
    if header.segment_size != _SEGMENT.size or not header.segment_count:
        raise _refused(path, "is damaged", f"{header.segment_count} segments of {header.segment_size} bytes")
    if header.section_count and header.section_size != _SECTION.size:
        raise _refused(path, "is damaged", f"{header.section_count} sections of {header.section_size} bytes")
    _inside(path, data, "the segment table", header.segments, header.segment_size * header.segment_count)
    _inside(path, data, "the section table", header.sections, header.section_size * header.section_count)
    loaded = 0
    for index in range(header.segment_count):
        kind, _, offset, _, _, size, memory, _ = _SEGMENT.unpack_from(data, header.segments + index * _SEGMENT.size)
        if kind == _LOAD:
            loaded += 1
            if size > memory:
                raise _refused(path, "is damaged", f"segment {index}: {size} bytes in the file, {memory} in memory")
        _inside(path, data, f"segment {index}", offset, size)
    if not loaded:
        raise _refused(path, "is no shared library", "it has nothing to load")
    for index in range(header.section_count):
        found = _SECTION.unpack_from(data, header.sections + index * _SECTION.size)
        if found[1] != _NO_BITS:
            _inside(path, data, f"section {index}", found[4], found[5])
    if data.find(MODULES) < 0:
        raise _refused(
            path, "was not built by tvm_codl", f"a shared library without the symbol {MODULES.decode()}: nothing to run"
        )


def _header(path: Path, data: Bytes) -> _Header:
    if data[:4] != b"\x7fELF":
        raise _refused(path, "is no shared library", f"it begins with {bytes(data[:8])!r}, not with \\x7fELF")
    ident, kind, machine, _, _, segments, sections, _, _, *sizes = _HEADER.unpack_from(data, 0)
    if ident[4] != 2 or ident[5] != 1:
        raise _refused(path, "is no 64-bit little-endian library", f"ELF class {ident[4]}, byte order {ident[5]}")
    if kind != _SHARED:
        raise _refused(path, "is no shared library", f"ELF type {kind}, a shared library has {_SHARED}")
    segment_size, segment_count, section_size, section_count, _ = sizes
    return _Header(kind, machine, segments, segment_size, segment_count, sections, section_size, section_count)


def _inside(path: Path, data: Bytes, what: str, offset: int, size: int) -> None:
    if offset + size > len(data):
        raise _refused(
            path, "is cut off or damaged", f"{what} ends at byte {offset + size}, the file has {len(data)} bytes"
        )


def _refused(path: Path, what: str, evidence: str) -> UserError:
    return UserError(f"{path.name} {what}", evidence, _NEXT)
