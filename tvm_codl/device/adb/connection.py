"""Phones on adb: which there are, a shell on one, its answers within bounds.

Through ``adbutils``, which talks to the adb server of this machine.  Two of its habits are not ours: where no server answers it
starts an adb program by itself, and it reads without end.  Whatever a phone says is outside data: it is cut to a
length, and checked by whoever reads it.  Nothing reaches a shell unquoted: :meth:`AdbPhone.run` takes words.
"""

from __future__ import annotations

import re
import secrets
import shlex
import socket
import struct
import time
from typing import Any

import msgspec
from adbutils import AdbClient, AdbDevice, AdbError
from adbutils._adb import AdbConnection

from tvm_codl.device.adb.address import adb_address
from tvm_codl.errors import DeviceError, UsageError

PATIENCE_S = 5.0  # for the adb server, which is on this machine
SHELL_S = 30.0
#: What ``adbutils`` raises where the other side breaks off or says something else.
BROKEN = (AdbError, OSError, ValueError, AssertionError, struct.error)
LARGEST_ANSWER = 1 << 20
_SERIAL = re.compile(r"[!-~]{1,128}")
_STATES = (
    "device",
    "offline",
    "unauthorized",
    "authorizing",
    "connecting",
    "recovery",
    "bootloader",
    "sideload",
    "host",
)
_AFTER_STATE = re.compile(r"\s(?:usb|product|model|device|features|devpath|transport_id):")
#: What a person does about a phone in one of these states.
_MEND = {
    "unauthorized": "unlock the phone and allow USB debugging for this computer, then: adb devices",
    "authorizing": "unlock the phone and allow USB debugging for this computer, then: adb devices",
    "offline": "adb reconnect offline   (or unplug the phone and plug it in again)",
    "no permissions": "give your user the phone's USB device (udev rules: apt-get install adb), then: adb kill-server; adb devices",
}
_NO_PHONE = "plug the phone in, switch on USB debugging in its developer options, then: adb devices -l"


class Listed(msgspec.Struct, frozen=True):
    """A line of ``adb devices -l``; ``state`` is ``device`` for a phone that can be used."""

    serial: str
    state: str
    model: str = ""


class Ran(msgspec.Struct, frozen=True):
    """What a command on a phone came to: its exit code, and what it wrote to stdout and stderr."""

    code: int
    output: str


class _Whole(socket.socket):
    """``adbutils`` sends with ``send`` and does not look how much went: here all goes."""

    def send(self, data: Any, flags: int = 0) -> int:
        self.sendall(data, flags)
        return len(data)


class _Connection(AdbConnection):
    """Connects or fails; never starts an adb program."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._place, self._timeout_s = (host, port), timeout_s
        super().__init__(host, port)

    def _safe_connect(self) -> socket.socket:
        connection = _Whole(socket.AF_INET6 if ":" in self._place[0] else socket.AF_INET)
        try:
            connection.settimeout(PATIENCE_S)
            connection.connect(self._place)
            connection.settimeout(self._timeout_s)
            return connection
        except BaseException:
            connection.close()
            raise


class AdbServer(AdbClient):
    """The adb server of :func:`~tvm_codl.device.adb.address.adb_address`."""

    def __init__(self) -> None:
        super().__init__(*adb_address())

    def make_connection(self, timeout: float | None = None) -> AdbConnection:
        """Raises :class:`DeviceError` where no adb server answers."""
        try:
            return _Connection(self.host, self.port, timeout or SHELL_S)
        except OSError as error:
            raise DeviceError(
                f"no adb server at {self.host}:{self.port}",
                str(error),
                "adb start-server   (as root: apt-get install adb)",
            ) from error

    def phones(self) -> list[Listed]:
        """What ``adb devices -l`` lists.  Raises :class:`DeviceError` where no adb server answers."""
        try:
            with self.make_connection(PATIENCE_S) as connection:
                connection.send_command("host:devices-l")
                connection.check_okay()
                return [found for line in connection.read_string_block().splitlines() if (found := listed(line))]
        except BROKEN as error:
            raise DeviceError(
                f"what answers at {self.host}:{self.port} is no adb server, or a broken one",
                plain(f"{type(error).__name__}: {error}"),
                "adb kill-server; adb start-server",
            ) from error

    def phone(self, serial: str = "") -> AdbPhone:
        """The phone ``serial``, or the only one.

        Raises :class:`UsageError` where there are several, :class:`DeviceError` where there is none that can be used.
        """
        found = self.phones()
        names = ", ".join(f"{one.serial} ({one.model or one.state})" for one in found)
        if serial:
            chosen = [one for one in found if one.serial == serial]
            if not chosen:
                raise DeviceError(
                    f"no phone {plain(serial)!r} on adb", f"adb lists: {names or 'none'}", "tvm-codl device ls"
                )
        else:
            chosen = [one for one in found if one.state == "device"] or found
            if not chosen:
                raise DeviceError("no phone on adb", "adb lists none", _NO_PHONE)
            if len(chosen) > 1:
                raise UsageError("which phone?", f"adb lists: {names}", f"add --serial {chosen[0].serial}")
        one = chosen[0]
        if one.state != "device":
            remedy = next((words for state, words in _MEND.items() if one.state.startswith(state)), _NO_PHONE)
            raise DeviceError(f"the phone {one.serial} cannot be used", f"adb says: {one.state}", remedy)
        return AdbPhone(self.device(serial=one.serial), one)


class AdbPhone:
    """A phone that adb may use."""

    def __init__(self, device: AdbDevice, about: Listed) -> None:
        self.adb, self.about = device, about

    @property
    def serial(self) -> str:
        return self.about.serial

    def run(self, script: str, *words: str, timeout_s: float = SHELL_S) -> Ran:
        """Runs a shell script on the phone; ``words`` are its ``$1``, ``$2`` and so on, whatever is in them.

        Raises :class:`DeviceError` where the phone goes away, says nothing for ``timeout_s`` or more than a mebibyte.
        """
        mark = secrets.token_hex(8)
        line = f"{shlex.join(['sh', '-c', script, 'sh', *words])}; echo {mark}$?"
        answer = self._answer(line, timeout_s).decode(errors="replace").replace("\r\n", "\n")
        output, marked, code = answer.rpartition(mark)
        if not marked or not re.fullmatch(r"\d{1,3}\n?", code):
            raise DeviceError(
                f"the shell of {self.serial} broke off", plain(answer[-200:]) or "it said nothing", "adb devices"
            )
        return Ran(int(code), output)

    def read(self, script: str, *words: str, timeout_s: float = SHELL_S) -> str:
        """What a script wrote.  Raises :class:`DeviceError` where it fails, too."""
        done = self.run(script, *words, timeout_s=timeout_s)
        if done.code != 0:
            raise DeviceError(
                f"a command failed on {self.serial}, with exit code {done.code}",
                plain(done.output.strip()[-400:]) or "it said nothing",
                f"tvm-codl device shell-check --serial {self.serial}",
            )
        return done.output

    def _answer(self, line: str, timeout_s: float) -> bytes:
        data, deadline = bytearray(), time.monotonic() + timeout_s
        try:
            with self.adb.open_transport(timeout=timeout_s) as connection:
                connection.send_command(f"shell:{line}")
                connection.check_okay()
                while chunk := connection.conn.recv(1 << 16):
                    data += chunk
                    if len(data) > LARGEST_ANSWER:
                        raise DeviceError(
                            f"{self.serial} says too much", f"more than {LARGEST_ANSWER} bytes", "adb shell"
                        )
                    if time.monotonic() > deadline:
                        raise TimeoutError("timed out")
        except BROKEN as error:
            raise self.lost(error) from error
        return bytes(data)

    def lost(self, error: Exception) -> DeviceError:
        """The error for a phone that went away or does not answer."""
        words = plain(str(error)) or type(error).__name__
        return DeviceError(f"the phone {self.serial} does not answer over adb", words, "tvm-codl device ls")


def listed(line: str) -> Listed | None:
    """A line of ``devices-l``: ``SERIAL STATE KEY:VALUE...``; the state may be several words.  None for anything else."""
    serial, _, rest = line.strip().partition("\t" if "\t" in line else " ")
    words = f" {rest.strip()} "
    state = plain(_AFTER_STATE.split(words, maxsplit=1)[0].strip(), 80)
    if not _SERIAL.fullmatch(serial) or not (state in _STATES or state.startswith("no permissions")):
        return None
    model = re.search(r"\smodel:(\S{1,64})\s", words)
    return Listed(serial, state, plain(model[1].replace("_", " ")) if model else "")


def plain(text: str, length: int = 400) -> str:
    """What a phone said, as it may go to a terminal: one line, without control characters, cut to a length."""
    return "".join(c if c.isprintable() else " " for c in text)[:length].strip()
