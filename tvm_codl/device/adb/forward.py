"""Ports between this machine and a phone, over adb: set up, kept up, taken down again.

``reverse`` brings a tracker or proxy of this machine to the phone's loopback, ``forward`` the phone's server to this machine's.  A
file in the cache folder says what was set up and is locked while its process lives: what a process that was
killed left behind can be told from what is in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Literal

import msgspec

from tvm_codl.device.adb.connection import BROKEN, AdbPhone
from tvm_codl.errors import DeviceError, UsageError
from tvm_codl.paths import cache_dir

LOOPBACK = "127.0.0.1"

Log = Callable[[str], None]


class Mapping(msgspec.Struct, frozen=True):
    """``reverse``: the phone's port leads to this machine's; ``forward``: this machine's leads to the phone's.

    ``what`` is what is behind it: ``tracker``, ``proxy`` or ``server``.
    """

    way: Literal["reverse", "forward"]
    phone_port: int
    host_port: int
    what: str = ""

    def __str__(self) -> str:
        phone, here = f"phone {LOOPBACK}:{self.phone_port}", f"here {LOOPBACK}:{self.host_port}"
        return f"{self.what}: " + (f"{phone} -> {here}" if self.way == "reverse" else f"{here} -> {phone}")


class _Left(msgspec.Struct, frozen=True):
    serial: str
    mappings: tuple[Mapping, ...]


class Forwarding:
    """Mappings of one phone, from :meth:`__enter__` to :meth:`__exit__`."""

    def __init__(self, phone: AdbPhone, mappings: tuple[Mapping, ...]) -> None:
        self.phone, self.mappings = phone, mappings
        self._up: list[Mapping] = []
        self._refused = ""
        self._journal: IO[str] | None = None

    def __enter__(self) -> Forwarding:
        """Raises :class:`UsageError` for a port that is mapped already, :class:`DeviceError` where adb refuses."""
        there = {(one.way, _own_port(one)) for one in _present(self.phone)}
        for one in self.mappings:
            if (one.way, _own_port(one)) in there:
                raise UsageError(
                    f"adb has a {one.way} of port {_own_port(one)} on {self.phone.serial} already",
                    "set up by another command, or left by one that was killed",
                    f"tvm-codl device forward --remove --serial {self.phone.serial}   (or: adb {one.way} --remove-all)",
                )
        self._journal = _write(self.phone, self.mappings)
        try:
            self.set_up(self.mappings)
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._take_down()

    def set_up(self, mappings: tuple[Mapping, ...]) -> None:
        for one in mappings:
            try:
                # norebind: two commands at once must not take each other's port.
                if one.way == "reverse":
                    self.phone.adb.reverse(f"tcp:{one.phone_port}", f"tcp:{one.host_port}", norebind=True)
                else:
                    self.phone.adb.forward(f"tcp:{one.host_port}", f"tcp:{one.phone_port}", norebind=True)
            except BROKEN as error:
                raise DeviceError(
                    f"adb does not set up the {one.way} of {one}",
                    str(error) or type(error).__name__,
                    "take another --port, or see who has it: adb forward --list; adb reverse --list",
                ) from error
            self._up.append(one)

    def missing(self) -> tuple[Mapping, ...]:
        """What adb forgot: it does when the phone is unplugged.  Raises :class:`DeviceError` while the phone is away."""
        there = {(one.way, one.phone_port, one.host_port) for one in _present(self.phone)}
        return tuple(one for one in self.mappings if (one.way, one.phone_port, one.host_port) not in there)

    def mend(self, log: Log) -> bool:
        """Sets up again what adb forgot.  False while the phone is away; what adb refuses is said, once in a row."""
        try:
            gone = self.missing()
        except DeviceError:
            return False
        self._up = [one for one in self._up if one not in gone]
        for one in gone:
            try:
                self.set_up((one,))
            except DeviceError as error:
                if str(error) != self._refused:
                    log(str(error))
                self._refused = str(error)
                return True
            log(f"set up again: {one}")
        self._refused = ""
        return True

    def _take_down(self) -> None:
        for one in reversed(self._up):
            with contextlib.suppress(DeviceError):  # the phone has gone, and the mapping with it
                remove(self.phone, one)
        self._up = []
        if self._journal is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._journal.name)
            self._journal.close()
            self._journal = None


@contextlib.contextmanager
def port_of(phone: AdbPhone, port: int) -> Iterator[int]:
    """A port of this machine that leads to one of the phone's, for a moment."""
    with socket.create_server((LOOPBACK, 0)) as probe:
        free = int(probe.getsockname()[1])
    with Forwarding(phone, (Mapping("forward", port, free, "server"),)):
        yield free


def leads_here(phone: AdbPhone, port: int) -> bool:
    """Whether the same port of this machine leads to that of the phone.  Raises :class:`DeviceError` without a phone."""
    return any((m.way, m.phone_port, m.host_port) == ("forward", port, port) for m in _present(phone))


def remove(phone: AdbPhone, one: Mapping) -> bool:
    """Takes a mapping down; False where there was none.  Raises :class:`DeviceError` where adb does not answer."""
    if not any((m.way, m.phone_port, m.host_port) == (one.way, one.phone_port, one.host_port) for m in _present(phone)):
        return False
    try:
        if one.way == "forward":
            phone.adb.open_transport(f"killforward:tcp:{one.host_port}").close()
        else:
            phone.adb.reverse_remove(f"tcp:{one.phone_port}")
    except BROKEN as error:
        raise phone.lost(error) from error
    return True


def remove_left(phone: AdbPhone) -> tuple[list[Mapping], bool]:
    """Takes down what killed processes left on a phone.  Returns that, and whether a living process has mappings there."""
    removed, in_use = [], False
    for path in sorted(_folder().glob(f"{_name(phone)}-*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError), path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                in_use = True
                continue
            left = msgspec.json.decode(file.read(), type=_Left)
            if left.serial == phone.serial:
                removed += [one for one in left.mappings if remove(phone, one)]
                path.unlink(missing_ok=True)
    return removed, in_use


def _own_port(one: Mapping) -> int:
    """The port that adb listens at: no two mappings of a way share it."""
    return one.phone_port if one.way == "reverse" else one.host_port


def _present(phone: AdbPhone) -> list[Mapping]:
    """What adb has set up between ports of this phone and of this machine."""
    try:
        backward = [("reverse", one.remote, one.local) for one in phone.adb.reverse_list()]
        forward = [("forward", o.remote, o.local) for o in phone.adb.forward_list() if o.serial == phone.serial]
    except BROKEN as error:
        raise phone.lost(error) from error
    found = []
    for way, remote, local in backward + forward:
        ports = [text.removeprefix("tcp:") for text in (remote, local)]
        if all(port.isdigit() and len(port) <= 5 for port in ports):
            found.append(Mapping(way, int(ports[0]), int(ports[1])))  # type: ignore[arg-type]
    return found


def _folder() -> Path:
    return cache_dir() / "forwards"


def _name(phone: AdbPhone) -> str:
    return hashlib.sha256(phone.serial.encode()).hexdigest()[:16]


def _write(phone: AdbPhone, mappings: tuple[Mapping, ...]) -> IO[str]:
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / f"{_name(phone)}-{secrets.token_hex(4)}.json").open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(msgspec.json.encode(_Left(phone.serial, mappings)).decode())
    file.flush()
    return file
