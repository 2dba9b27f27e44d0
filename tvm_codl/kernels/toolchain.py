"""The two TVM targets of a phone, from what its profile says."""

from __future__ import annotations

import hashlib
import re
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import tvm

import tvm_codl.kernels.register  # noqa: F401 - registers our kernels for our targets
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import UserError
from tvm_codl.kernels import version
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.reuse import SHIPPED
from tvm_codl.kernels.schedules.image import PIXEL
from tvm_codl.kernels.target import cpu_target, gpu_target, has_local_memory, vector_lanes, with_images

#: Raise it when regions are timed in another way (runtime/native/coexec/*_time.cc): earlier times are stale then.
TIMING = 5
#: The longest side, in pixels, of an image on cores that play a GPU.
PLAYED_IMAGE_SIDE = 4096


class Toolchain(msgspec.Struct, frozen=True):
    """Targets, and the tuned schedules that go with them.

    ``kernel_id`` changes with any of these, with :data:`~tvm_codl.kernels.version.KERNELS`, and with how many cores a
    computer lends the phone that it plays: times of one id can be compared.
    ``build_id`` changes with all that, with :data:`~tvm_codl.kernels.version.LIBRARIES`, and with the runtime.
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
    gpu = Gpu.of(msgspec.structs.asdict(profile), vector_lanes(cpu))
    # PoCL's images follow the memory that is free as it starts, and the kernels' id would follow them.
    sides = (*profile.image2d, PLAYED_IMAGE_SIDE) if profile.gpu_cores else profile.image2d
    return cpu, gpu_target(cpu, gpu, image_side=min(sides))


def reads_images(profile: DeviceProfile) -> bool:
    """Whether kernels for a phone of that profile can read weights from images."""
    _, gpu = targets_of(profile)
    pixels = vector_lanes(gpu) == PIXEL and not has_local_memory(gpu)
    return profile.images and min(profile.image2d) > 0 and pixels


def toolchain(profile: DeviceProfile, tuning_records: Path | None = None) -> Toolchain:
    """Targets for a phone of that profile, with the shipped records and the user's."""
    cpu, gpu = targets_of(profile)
    records = (tuning_records,) if tuning_records else ()
    # A computer that plays a phone may lend other cores the next time.  A phone always runs on all of its own.
    cores = f"{len(profile.cpu_cores)}|{len(profile.gpu_cores)}" if profile.gpu_cores else ""
    made = f"{version.KERNELS}|{tvm.__version__}|{cpu}|{gpu}|{profile.gpu_version}|{cores}|{TIMING}"
    contents = [_content(path) for path in (*records, *sorted(SHIPPED.glob("*.log")))]
    kernel_id = _digest(made.encode(), *contents)
    return Toolchain(
        cpu, gpu, records, _digest(f"{kernel_id}|{version.LIBRARIES}|{profile.build_id}".encode()), kernel_id
    )


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read tuning records from {path}", str(error), "tvm-codl tune MODEL -o FILE") from error


def _option(target: str, name: str) -> str:
    """The value of ``-name=value`` in a target string; empty where it has none."""
    option = re.search(rf"(?<!\S)-{name}=(\S*)", target)
    return option[1] if option else ""
