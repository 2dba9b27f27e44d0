"""Checks that a phone's native server was built from the sources installed here: another build fails late and obscurely."""

from __future__ import annotations

from typing import Any

import msgspec

from tvm_codl.errors import DeviceError
from tvm_codl.runtime.server_build import ServerBuild, coexec_id


def server_build(remote: Any) -> ServerBuild | None:
    """The build that the server reports; None for the reference phone, which runs the sources themselves."""
    try:
        ask = remote.get_function("codl.build")
    except AttributeError:
        return None
    return msgspec.json.decode(str(ask()), type=ServerBuild)


def check_same_build(remote: Any, where: str) -> None:
    """Raises :class:`DeviceError`, with the command that rebuilds, if the server's co-executor or TVM differs."""
    build = server_build(remote)
    if build is None or build.coexec == coexec_id():
        return
    command = f"python -m tvm_codl.runtime.server_build {build.platform}   and start that one on the phone: tvm-codl device push"
    if build.kind == "app":
        command = "python -m rpc_apps.android_rpc.build_apk   and: tvm-codl device install"
    raise DeviceError(
        f"the {build.kind} at {where} was built from another version",
        f"its co-executor is {build.coexec} (TVM {build.tvm}, {build.platform}), the one installed here {coexec_id()}",
        command,
    )
