"""What is known of GPU kernels' answers on one phone: by content, so that each is checked once."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

import msgspec

from tvm_codl.device.profile import DeviceProfile
from tvm_codl.paths import cache_dir
from tvm_codl.records.record import ErrorNo


class Fault(msgspec.Struct, frozen=True):
    """An answer that is wrong or unsteady (``error_no``), and the evidence."""

    error_no: int
    words: str

    @property
    def name(self) -> str:
        """``wrong`` or ``unsteady``."""
        return "unsteady" if self.error_no == ErrorNo.GPU_UNSTEADY else "wrong"


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """``kernels`` that are right, or a ``library`` and its fault."""

    kernels: tuple[str, ...] = ()
    library: str = ""
    fault: Fault | None = None


class CheckedKernels:
    """Digests of kernels (:mod:`tvm_codl.build.contents`) whose answers were right, and libraries whose were not.

    One file of JSON lines a phone and driver in the cache folder, which grows.
    """

    def __init__(self, profile: DeviceProfile, folder: Path | None = None) -> None:
        driver = "|".join((profile.name, profile.gpu_name, profile.gpu_version))
        name = hashlib.sha256(driver.encode()).hexdigest()[:16]
        self._path = (folder or cache_dir() / "answers") / f"{name}.jsonl"
        self._right: set[str] = set()
        self.faults: dict[str, Fault] = {}
        for text in self._path.read_text().splitlines() if self._path.exists() else ():
            try:
                line = msgspec.json.decode(text, type=_Line)
            except msgspec.DecodeError:
                continue  # half written by a process that was killed: it is checked again
            self._right.update(line.kernels)
            if line.fault is not None:
                self.faults[line.library] = line.fault

    def knows(self, kernels: Collection[str]) -> bool:
        """Whether all of them are right."""
        return self._right.issuperset(kernels)

    def keep_right(self, kernels: Collection[str]) -> None:
        new = tuple(sorted(set(kernels) - self._right))
        if new:
            self._append(_Line(new))
            self._right.update(new)

    def keep_fault(self, library: str, fault: Fault) -> None:
        """Of the library by its name in the cache, which is a digest of its content."""
        self._append(_Line((), library, fault))
        self.faults[library] = fault

    def _append(self, line: _Line) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
