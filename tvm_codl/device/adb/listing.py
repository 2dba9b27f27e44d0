"""All phones in one list: those that adb sees, those that a tracker knows, those that wait behind a proxy."""

from __future__ import annotations

import re
import socket
import struct

import msgspec

from tvm_codl.device.adb.connection import AdbServer, plain
from tvm_codl.errors import DeviceError, UsageError

ANSWER_S = 1.0
_KEY = re.compile(r"[A-Za-z0-9_.+=@-]{1,128}")


class Seen(msgspec.Struct, frozen=True):
    """A phone somewhere: ``where`` is ``adb``, ``tracker HOST:PORT`` or ``proxy HOST:PORT``.

    adb knows serial and model, trackers and proxies know keys; ``state`` is adb's, or how many of a key's phones are
    free.
    """

    serial: str
    model: str
    state: str
    key: str
    where: str


def checked_key(key: str) -> str:
    """A key as a phone may serve.  Raises :class:`UsageError`."""
    if not _KEY.fullmatch(key):
        raise UsageError(f"{key!r} is no key", "", "letters, digits and . _ + = @ -")
    return key


def on_adb(server: AdbServer) -> list[Seen]:
    """Raises :class:`DeviceError` where no adb server answers."""
    return [Seen(one.serial, one.model, one.state, "", "adb") for one in server.phones()]


def at_tracker(host: str, port: int) -> list[Seen]:
    """A line for each key.  Raises :class:`DeviceError` where there is no tracker."""
    from tvm_codl.device.ask_tracker import tracker_summary

    return [
        Seen("", "", f"{free} of {count} free", plain(key, 128), f"tracker {host}:{port}")
        for key, (count, free) in sorted(tracker_summary(host, port).items())
    ]


def behind_proxy(host: str, port: int, keys: tuple[str, ...]) -> list[Seen]:
    """A line for each of these keys; a proxy does not tell which it has.  Raises :class:`DeviceError` without a proxy."""
    return [
        Seen(
            "",
            "",
            "free" if waits_behind(host, port, checked_key(key)) else "busy or not there",
            key,
            f"proxy {host}:{port}",
        )
        for key in keys
    ]


def waits_behind(host: str, port: int, key: str) -> bool:
    """Whether a phone with this key waits at a proxy for a client.

    A proxy takes one phone a key, and says so to a second one, which is what this pretends to be for a second at most; a phone
    or client that comes in just then has to come again.  Raises :class:`DeviceError` where there is no proxy.
    """
    from tvm.rpc import base

    from tvm_codl.device import handshake

    start = f"python -m tvm.exec.rpc_proxy --host {host} --port {port}"
    try:
        with socket.create_connection((host, port), timeout=handshake.PATIENCE_S) as conn:
            conn.sendall(struct.pack("<i", base.RPC_MAGIC))
            handshake.send_text(conn, f"server:{key}")
            conn.settimeout(ANSWER_S)
            try:
                return handshake.read_number(conn) == base.RPC_CODE_DUPLICATE
            except TimeoutError:
                return False
    except (OSError, handshake.Refused) as error:
        raise DeviceError(f"no proxy at {host}:{port}", str(error) or type(error).__name__, start) from error
