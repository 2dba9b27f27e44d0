"""The two TVM targets of a phone, from what its profile says."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import tvm

import tvm_codl.kernels.register  # noqa: F401 - registers our kernels for our targets
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import UserError
from tvm_codl.kernels.schedules.image import PIXEL
from tvm_codl.kernels.target import cpu_target, gpu_target, vector_lanes, with_images
from tvm_codl.kernels.transfer import SHIPPED, scheduled

#: The folders whose code decides what a library holds: one that an older version built must not pass for today's.
_MAKERS = ("build", "graph", "relay", "schedule", "tiling")
#: Of these, what puts kernels together into a network's library, and has no say in how long a kernel takes.
_ASSEMBLERS = frozenset(
    (
        "build/adaptive.py",
        "build/elf.py",
        "build/library.py",
        "build/lifetimes.py",
        "build/program.py",
        "relay/annotate.py",
        "relay/float16.py",
        "relay/partition.py",
        "relay/regions.py",
    )
)
#: To be raised when a region is timed in another way (runtime/native/coexec/*_time.cc): what was measured before is stale.
TIMING = 2


class Toolchain(msgspec.Struct, frozen=True):
    """Targets, and the tuned schedules that go with them.

    ``kernel_id`` changes with any of these, with the code that makes kernels, and with how many cores a computer
    lends the phone that it plays: records of one id can be compared.
    ``build_id`` changes with all that, with the code that puts libraries together, and with the runtime.
    """

    cpu: tvm.target.Target
    gpu: tvm.target.Target
    records: tuple[Path, ...]
    build_id: str
    kernel_id: str

    def gpu_with(self, memory: str) -> tvm.target.Target:
        """The GPU's target where weights lie in ``memory``, "buffer" or "image"."""
        return with_images(self.gpu) if memory == "image" else self.gpu

    def scheduled(self) -> AbstractContextManager[object]:
        """The context in which kernels are built: shipped records, then these."""
        return scheduled(self.records)


def targets_of(profile: DeviceProfile) -> tuple[tvm.target.Target, tvm.target.Target]:
    """The targets for the CPU and the GPU of a phone of that profile."""
    mcpu, mattr, mtriple = (_option(profile.cpu_target, name) for name in ("mcpu", "mattr", "mtriple"))
    cpu = cpu_target(mcpu, mattr, mtriple)
    return cpu, gpu_target(cpu, max_threads=profile.max_work_group or 256, image_side=min(profile.image2d))


def reads_images(profile: DeviceProfile) -> bool:
    """Whether kernels for a phone of that profile can read weights from images."""
    return profile.images and min(profile.image2d) > 0 and vector_lanes(targets_of(profile)[1]) == PIXEL


def toolchain(profile: DeviceProfile, tuning_records: Path | None = None) -> Toolchain:
    """Targets for a phone of that profile, with the shipped records and the user's."""
    cpu, gpu = targets_of(profile)
    records = (tuning_records,) if tuning_records else ()
    # A computer that plays a phone may have other cores the next time; a phone only lends others to its server.
    cores = f"{len(profile.cpu_cores)}|{len(profile.gpu_cores)}" if profile.gpu_cores else ""
    kernels = hashlib.sha256(f"{tvm.__version__}|{cpu}|{gpu}|{profile.gpu_version}|{cores}|{TIMING}".encode())
    for path in (*records, *sorted(SHIPPED.glob("*.log"))):
        kernels.update(_content(path))
    library = hashlib.sha256(profile.build_id.encode())
    package = Path(__file__).parent
    for path in sorted(p for folder in _MAKERS for p in (package / folder).glob("*.py")):
        digest = library if path.relative_to(package).as_posix() in _ASSEMBLERS else kernels
        digest.update(_content(path))
    library.update(kernels.digest())
    return Toolchain(cpu, gpu, records, library.hexdigest()[:16], kernels.hexdigest()[:16])


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read tuning records from {path}", str(error), "tvm-codl tune MODEL -o FILE") from error


def _option(target: str, name: str) -> str:
    """The value of ``-name=value`` in a target string; empty where it has none."""
    for word in target.split():
        if word.startswith(f"-{name}="):
            return word.partition("=")[2]
    return ""
