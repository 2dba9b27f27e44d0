"""The id of a phone's kernels without TVM, where it was worked out before: importing TVM takes a second."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from tvm_codl.device.profile import DeviceProfile
from tvm_codl.kernels.reuse import SHIPPED
from tvm_codl.paths import cache_dir
from tvm_codl.sources import code_digest, tvm_version


def kernel_id(profile: DeviceProfile, tuning_records: Path | None = None) -> str:
    """``kernel_id`` of :func:`~tvm_codl.kernels.toolchain.toolchain`, which says what is raised."""
    digest = hashlib.sha256(msgspec.json.encode([tvm_version(), profile]) + code_digest("kernels"))
    for path in (*([tuning_records] if tuning_records else []), *sorted(SHIPPED.glob("*.log"))):
        if path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    kept = cache_dir() / "kernel-ids" / digest.hexdigest()[:32]
    if kept.exists() and (known := kept.read_text(encoding="ascii")):
        return known
    from tvm_codl.kernels.toolchain import toolchain

    found = toolchain(profile, tuning_records).kernel_id
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(found, encoding="ascii")
    return found
