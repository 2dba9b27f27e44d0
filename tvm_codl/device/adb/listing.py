"""Lists phones: on adb, at a tracker, behind a proxy."""

from __future__ import annotations

import re

import msgspec

from tvm_codl.device.adb.connection import AdbServer, sanitize
from tvm_codl.errors import DeviceError, UsageError

ANSWER_S = 1.0
_KEY = re.compile(r"[A-Za-z0-9_.+=@-]{1,128}")


class PhoneEntry(msgspec.Struct, frozen=True):
    """A phone in a list: ``where`` is ``adb``, ``tracker HOST:PORT`` or ``proxy HOST:PORT``.

    adb knows serial and model, trackers and proxies know keys; ``state`` is adb's, or how many phones of a key are free.
    """

    serial: str
    model: str
    state: str
    key: str
    where: str


def check_key(key: str) -> str:
    """``key``, if a phone may serve it.  Raises :class:`UsageError`."""
    if not _KEY.fullmatch(key):
        raise UsageError(f"{key!r} is not a valid key", "", "letters, digits and . _ + = @ -")
    return key


def list_adb(server: AdbServer) -> list[PhoneEntry]:
    """Raises :class:`DeviceError` where no adb server answers."""
    return [PhoneEntry(entry.serial, entry.model, entry.state, "", "adb") for entry in server.phones()]


def list_tracker(host: str, port: int) -> list[PhoneEntry]:
    """An entry for each key.  Raises :class:`DeviceError` where there is no tracker."""
    from tvm_codl.device.tracker_client import tracker_summary

    keys = sorted(tracker_summary(host, port).items())
    where = f"tracker {host}:{port}"
    return [PhoneEntry("", "", f"{free} of {count} free", sanitize(key, 128), where) for key, (count, free) in keys]


def list_proxy(host: str, port: int, keys: tuple[str, ...]) -> list[PhoneEntry]:
    """An entry for each of these keys; a proxy does not list its own.  Raises :class:`DeviceError` without a proxy."""
    states = {key: is_waiting_at_proxy(host, port, check_key(key)) for key in keys}
    where = f"proxy {host}:{port}"
    return [PhoneEntry("", "", "free" if free else "busy or not there", key, where) for key, free in states.items()]


def is_waiting_at_proxy(host: str, port: int, key: str) -> bool:
    """Whether a phone with this key waits at a proxy for a client.

    A proxy takes one phone per key and rejects a second one; this pretends to be that second one for at most a second.
    A phone or client that comes in that moment must retry.  Raises :class:`DeviceError` where there is no proxy.
    """
    from tvm.rpc import base

    from tvm_codl.device import handshake

    start = f"python -m tvm.exec.rpc_proxy --host {host} --port {port} --web-port 0"
    try:
        with handshake.dial(host, port) as conn:
            handshake.send_text(conn, f"server:{key}")
            conn.settimeout(ANSWER_S)
            try:
                return handshake.read_number(conn) == base.RPC_CODE_DUPLICATE
            except TimeoutError:
                return False
    except (OSError, handshake.Refused) as error:
        raise DeviceError(f"no proxy at {host}:{port}", str(error) or type(error).__name__, start) from error
