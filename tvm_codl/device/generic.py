"""The profile of a phone of which only the platform is known: the target of a library built without a phone."""

from __future__ import annotations

import platform as machine

from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import UserError
from tvm_codl.runtime.platforms import ANDROID_TRIPLE, LINUX_TRIPLE, name_of, triple_of

#: Every arm64 processor has this.
FEATURES = "+neon"
#: Every phone GPU's OpenCL allows this many work-items in a group.
WORK_GROUP = 128
#: OpenCL 1.2's minimum for a device with images and the full profile (CL_DEVICE_IMAGE2D_MAX_WIDTH).
IMAGE_SIDE = 8192

_TRIPLES = {"android-arm64": ANDROID_TRIPLE, "linux-arm64": LINUX_TRIPLE}


def generic_profile(platform: str) -> DeviceProfile:
    """A phone of the platform ``android-arm64`` or ``linux-arm64``: armv8-a with NEON, and a small GPU.

    Raises :class:`UserError` for any other platform.
    """
    triple = _TRIPLES.get(platform)
    if triple is None:
        raise UserError(f"no profile of any {platform}", f"known: {', '.join(_TRIPLES)}", "name a phone")
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
    """Raises :class:`UserError` where the profile's phone is of another platform."""
    triple = triple_of(profile.cpu_target)
    actual = name_of(triple or (profile.arch if profile.arch != machine.machine() else ""))
    if name_of(_TRIPLES.get(platform, "")) != actual:
        raise UserError(
            f"{profile.name} runs no library that is built for {platform}",
            f"it is {profile.arch}{f', {triple}' if triple else ''}: {actual}",
            f"tvm-codl build MODEL --target {actual}",
        )
