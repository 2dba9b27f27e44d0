"""A phone of which only the kind is known: what a library is built for when no phone is at hand."""

from __future__ import annotations

import platform as machine

from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import UserError
from tvm_codl.runtime.platforms import ANDROID_TRIPLE, LINUX_TRIPLE, name_of

#: What every arm64 processor has.
FEATURES = "+neon"
#: Work-items in a group that every OpenCL GPU of a phone takes.
WORK_GROUP = 128

#: What OpenCL 1.2 asks of a device that has images and not the embedded profile (CL_DEVICE_IMAGE2D_MAX_WIDTH).
IMAGE_SIDE = 8192

_TRIPLES = {"android-arm64": ANDROID_TRIPLE, "linux-arm64": LINUX_TRIPLE}


def generic_profile(platform: str) -> DeviceProfile:
    """Any phone of the platform ``android-arm64`` or ``linux-arm64``: armv8-a with NEON, and a modest GPU.

    Raises :class:`UserError` for a platform of which nothing is known.
    """
    triple = _TRIPLES.get(platform)
    if triple is None:
        raise UserError(f"nothing is known of any {platform}", f"there is {', '.join(_TRIPLES)}", "name a phone")
    return DeviceProfile(
        name=f"any {platform}",
        arch="aarch64",
        cpu_name="armv8-a",
        cpu_cores=(),
        cpu_target=f"llvm -mtriple={triple} -mattr={FEATURES}",
        gpu_name="any OpenCL GPU",
        gpu_target="opencl",
        max_work_group=WORK_GROUP,
        images=True,
        image2d=(IMAGE_SIDE, IMAGE_SIDE),
    )


def check_platform(platform: str, profile: DeviceProfile) -> None:
    """Raises :class:`UserError` where a phone of that profile is no ``platform``."""
    words = profile.cpu_target.split()
    triple = next((word.partition("=")[2] for word in words if word.startswith("-mtriple=")), "")
    found = name_of(triple or (profile.arch if profile.arch != machine.machine() else ""))
    if name_of(_TRIPLES.get(platform, "")) != found:
        raise UserError(
            f"{profile.name} runs no library that is built for {platform}",
            f"it is {profile.arch}{f', {triple}' if triple else ''}: {found}",
            f"tvm-codl build MODEL --target {found}",
        )
