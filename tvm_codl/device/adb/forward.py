"""Ports between this machine and a phone over adb: set up, restored, taken down.

``reverse`` brings a tracker or proxy of this machine to the phone's loopback, ``forward`` brings the phone's server to this
machine's.  A journal in the cache folder lists what a process set up and stays locked while the process lives; an unlocked
one was left by a killed process.
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

from tvm_codl.device.adb.connection import ADB_ERRORS, AdbPhone
from tvm_codl.errors import DeviceError, UsageError
from tvm_codl.paths import cache_dir

LOOPBACK = "127.0.0.1"

Log = Callable[[str], None]


class Mapping(msgspec.Struct, frozen=True):
    """``reverse``: the phone's port leads to this machine's; ``forward``: this machine's port leads to the phone's.

    ``what`` listens at the far end: ``tracker``, ``proxy`` or ``server``.
    """

    way: Literal["reverse", "forward"]
    phone_port: int
    host_port: int
    what: str = ""

    def __str__(self) -> str:
        phone, here = f"phone {LOOPBACK}:{self.phone_port}", f"here {LOOPBACK}:{self.host_port}"
        return f"{self.what}: " + (f"{phone} -> {here}" if self.way == "reverse" else f"{here} -> {phone}")

    @property
    def listens_at(self) -> tuple[str, int]:
        """The way, and the port where adb listens: no two mappings share these."""
        return self.way, self.phone_port if self.way == "reverse" else self.host_port

    def is_in(self, present: list[Mapping]) -> bool:
        """Whether adb has this mapping, whatever is behind it."""
        return msgspec.structs.replace(self, what="") in present


class _Journal(msgspec.Struct, frozen=True):
    serial: str
    mappings: tuple[Mapping, ...]


class Forwarding:
    """Mappings of one phone, from :meth:`__enter__` to :meth:`__exit__`."""

    def __init__(self, phone: AdbPhone, mappings: tuple[Mapping, ...]) -> None:
        self.phone, self.mappings = phone, mappings
        self._active: list[Mapping] = []
        self._last_error = ""
        self._journal: IO[str] | None = None

    def __enter__(self) -> Forwarding:
        """Raises :class:`UsageError` for a port that is mapped already, :class:`DeviceError` where adb refuses."""
        taken = {mapping.listens_at for mapping in _list_mappings(self.phone)}
        for way, port in (mapping.listens_at for mapping in self.mappings):
            if (way, port) in taken:
                raise UsageError(
                    f"adb has a {way} of port {port} on {self.phone.serial} already",
                    "set up by another command, or left by one that was killed",
                    f"tvm-codl device forward --remove --serial {self.phone.serial}   (or: adb {way} --remove-all)",
                )
        self._journal = _open_journal(self.phone, self.mappings)
        try:
            for mapping in self.mappings:
                self._set_up(mapping)
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._take_down()

    def _set_up(self, mapping: Mapping) -> None:
        phone, here = f"tcp:{mapping.phone_port}", f"tcp:{mapping.host_port}"
        try:
            # norebind: two commands at once must not take each other's port.
            if mapping.way == "reverse":
                self.phone.adb.reverse(phone, here, norebind=True)
            else:
                self.phone.adb.forward(here, phone, norebind=True)
        except ADB_ERRORS as error:
            raise DeviceError(
                f"adb does not set up the {mapping.way} of {mapping}",
                str(error) or type(error).__name__,
                "take another --port, or see who has it: adb forward --list; adb reverse --list",
            ) from error
        self._active.append(mapping)

    def restore(self, log: Log) -> bool:
        """Sets up again what adb lost when the phone was unplugged.  False while the phone is away.

        A repeated error is logged once.
        """
        try:
            present = _list_mappings(self.phone)
        except DeviceError:
            return False
        lost = [mapping for mapping in self.mappings if not mapping.is_in(present)]
        self._active = [mapping for mapping in self._active if mapping not in lost]
        for mapping in lost:
            try:
                self._set_up(mapping)
            except DeviceError as error:
                if str(error) != self._last_error:
                    log(str(error))
                self._last_error = str(error)
                return True
            log(f"set up again: {mapping}")
        self._last_error = ""
        return True

    def _take_down(self) -> None:
        for mapping in reversed(self._active):
            with contextlib.suppress(DeviceError):  # the phone has gone, and the mapping with it
                _remove(self.phone, mapping)
        self._active = []
        if self._journal is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._journal.name)
            self._journal.close()
            self._journal = None


@contextlib.contextmanager
def forwarded_port(phone: AdbPhone, port: int) -> Iterator[int]:
    """A port of this machine that leads to the phone's ``port`` while the block runs."""
    with socket.create_server((LOOPBACK, 0)) as probe:
        free = int(probe.getsockname()[1])
    with Forwarding(phone, (Mapping("forward", port, free, "server"),)):
        yield free


def is_forwarded(phone: AdbPhone, port: int) -> bool:
    """Whether this machine's ``port`` leads to the phone's same port.  Raises :class:`DeviceError` without a phone."""
    return Mapping("forward", port, port).is_in(_list_mappings(phone))


def _remove(phone: AdbPhone, mapping: Mapping) -> bool:
    """Takes a mapping down; False where there was none.  Raises :class:`DeviceError` where adb does not answer."""
    if not mapping.is_in(_list_mappings(phone)):
        return False
    try:
        if mapping.way == "forward":
            phone.adb.forward_remove(f"tcp:{mapping.host_port}")
        else:
            phone.adb.reverse_remove(f"tcp:{mapping.phone_port}")
    except ADB_ERRORS as error:
        raise phone.connection_error(error) from error
    return True


def remove_stale(phone: AdbPhone) -> tuple[list[Mapping], bool]:
    """Takes down what killed processes left on a phone.  Returns that, and whether a living process has mappings there."""
    removed, in_use = [], False
    for path in sorted(_folder().glob(f"{_phone_id(phone)}-*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError), path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                in_use = True
                continue
            journal = msgspec.json.decode(file.read(), type=_Journal)
            if journal.serial == phone.serial:
                removed += [mapping for mapping in journal.mappings if _remove(phone, mapping)]
                path.unlink(missing_ok=True)
    return removed, in_use


def _list_mappings(phone: AdbPhone) -> list[Mapping]:
    """The port mappings of this phone."""
    try:
        items = [("reverse", item.remote, item.local) for item in phone.adb.reverse_list()]
        items += [("forward", i.remote, i.local) for i in phone.adb.forward_list() if i.serial == phone.serial]
    except ADB_ERRORS as error:
        raise phone.connection_error(error) from error
    mappings = []
    for way, remote, local in items:
        ports = [text.removeprefix("tcp:") for text in (remote, local)]
        if all(port.isdigit() and len(port) <= 5 for port in ports):
            mappings.append(Mapping(way, int(ports[0]), int(ports[1])))  # type: ignore[arg-type]
    return mappings


def _folder() -> Path:
    return cache_dir() / "forwards"


def _phone_id(phone: AdbPhone) -> str:
    return hashlib.sha256(phone.serial.encode()).hexdigest()[:16]


def _open_journal(phone: AdbPhone, mappings: tuple[Mapping, ...]) -> IO[str]:
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / f"{_phone_id(phone)}-{secrets.token_hex(4)}.json").open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(msgspec.json.encode(_Journal(phone.serial, mappings)).decode())
    file.flush()
    return file
