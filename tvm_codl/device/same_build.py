"""Is a phone's native server made from the sources that are installed here?  One of another build fails late and oddly."""

from __future__ import annotations

from typing import Any

import msgspec

from tvm_codl.errors import DeviceError
from tvm_codl.runtime.server_build import ServerBuild, coexec_id


def server_build(remote: Any) -> ServerBuild | None:
    """What the server of a session says of its build; None where it is no native one (the reference phone runs the
    sources themselves)."""
    try:
        ask = remote.get_function("codl.build")
    except AttributeError:
        return None
    return msgspec.json.decode(str(ask()), type=ServerBuild)


def check_same_build(remote: Any, where: str) -> None:
    """Raises :class:`DeviceError`, which says what to build again, where the server's co-executor or TVM is another."""
    told = server_build(remote)
    if told is None or told.coexec == coexec_id():
        return
    anew = f"python -m tvm_codl.runtime.server_build {told.platform}   and start that one on the phone: tvm-codl device push"
    if told.kind == "app":
        anew = "python -m rpc_apps.android_rpc.build_apk   and: tvm-codl device install"
    raise DeviceError(
        f"the {told.kind} at {where} was built from another version",
        f"its co-executor is {told.coexec} (TVM {told.tvm}, {told.platform}), the one installed here {coexec_id()}",
        anew,
    )
