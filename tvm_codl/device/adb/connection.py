"""Phones on adb: list them, run shell scripts on one, bound the answers.

Uses ``adbutils`` with two changes: it must not start an adb program where no server answers, and it must not read without
a limit.  Everything a phone says is untrusted: it is cut to a length and checked by the reader.  Nothing reaches a shell
unquoted: :meth:`AdbPhone.run` takes words.
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
#: What ``adbutils`` raises on a broken connection or an unexpected answer.
ADB_ERRORS = (AdbError, OSError, ValueError, AssertionError, struct.error)
LARGEST_ANSWER = 1 << 20
_SERIAL = re.compile(r"[!-~]{1,128}")
_STATES = [
    "device",
    "offline",
    "unauthorized",
    "authorizing",
    "connecting",
    "recovery",
    "bootloader",
    "sideload",
    "host",
]
_AFTER_STATE = re.compile(r"\s(?:usb|product|model|device|features|devpath|transport_id):")
_ALLOW = "unlock the phone and allow USB debugging for this computer, then: adb devices"
#: What to do about a phone in one of these states.
_REMEDIES = {
    "unauthorized": _ALLOW,
    "authorizing": _ALLOW,
    "offline": "adb reconnect offline   (or unplug the phone and plug it in again)",
    "no permissions": "give your user the phone's USB device (udev rules: apt-get install adb), then: adb kill-server; adb devices",
}
_NO_PHONE = "plug the phone in, switch on USB debugging in its developer options, then: adb devices -l"


class AdbEntry(msgspec.Struct, frozen=True):
    """A line of ``adb devices -l``; ``state`` is ``device`` for a usable phone."""

    serial: str
    state: str
    model: str = ""


class ShellResult(msgspec.Struct, frozen=True):
    """A finished command on a phone: its exit code, and its stdout and stderr."""

    code: int
    output: str


class _FullSendSocket(socket.socket):
    """``adbutils`` calls ``send`` and ignores its result; this sends everything."""

    def send(self, data: Any, flags: int = 0) -> int:
        self.sendall(data, flags)
        return len(data)


class _Connection(AdbConnection):
    """Connects or fails; never starts an adb program."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._address, self._timeout_s = (host, port), timeout_s
        super().__init__(host, port)

    def _safe_connect(self) -> socket.socket:
        connection = _FullSendSocket(socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET)
        try:
            connection.settimeout(PATIENCE_S)
            connection.connect(self._address)
            connection.settimeout(self._timeout_s)
            return connection
        except BaseException:
            connection.close()
            raise


class AdbServer(AdbClient):
    """The adb server at :func:`~tvm_codl.device.adb.address.adb_address`."""

    def __init__(self) -> None:
        super().__init__(*adb_address())

    def make_connection(self, timeout: float | None = None) -> AdbConnection:
        """Raises :class:`DeviceError` where no adb server answers."""
        try:
            return _Connection(self.host, self.port, timeout or SHELL_S)
        except OSError as error:
            start = "adb start-server   (as root: apt-get install adb)"
            raise DeviceError(f"no adb server at {self.host}:{self.port}", str(error), start) from error

    def phones(self) -> list[AdbEntry]:
        """What ``adb devices -l`` lists.  Raises :class:`DeviceError` where no adb server answers."""
        try:
            with self.make_connection(PATIENCE_S) as connection:
                connection.send_command("host:devices-l")
                connection.check_okay()
                lines = connection.read_string_block().splitlines()
        except ADB_ERRORS as error:
            evidence = sanitize(f"{type(error).__name__}: {error}")
            what = f"what answers at {self.host}:{self.port} is no adb server, or a broken one"
            raise DeviceError(what, evidence, "adb kill-server; adb start-server") from error
        return [entry for line in lines if (entry := parse_entry(line))]

    def phone(self, serial: str = "") -> AdbPhone:
        """The phone ``serial``, or the only one.

        Raises :class:`UsageError` where there are several, :class:`DeviceError` where none is usable.
        """
        entries = self.phones()
        names = ", ".join(f"{entry.serial} ({entry.model or entry.state})" for entry in entries)
        if serial:
            chosen = [entry for entry in entries if entry.serial == serial]
            if not chosen:
                evidence = f"adb lists: {names or 'none'}"
                raise DeviceError(f"no phone {sanitize(serial)!r} on adb", evidence, "tvm-codl device ls")
        else:
            chosen = [entry for entry in entries if entry.state == "device"] or entries
            if not chosen:
                raise DeviceError("no phone on adb", "adb lists none", _NO_PHONE)
            if len(chosen) > 1:
                raise UsageError("which phone?", f"adb lists: {names}", f"add --serial {chosen[0].serial}")
        entry = chosen[0]
        if entry.state != "device":
            remedy = next((words for state, words in _REMEDIES.items() if entry.state.startswith(state)), _NO_PHONE)
            raise DeviceError(f"the phone {entry.serial} cannot be used", f"adb says: {entry.state}", remedy)
        return AdbPhone(self.device(serial=entry.serial), entry)


class AdbPhone:
    """A usable phone on adb."""

    def __init__(self, device: AdbDevice, entry: AdbEntry) -> None:
        self.adb, self.entry, self.serial = device, entry, entry.serial

    def run(self, script: str, *words: str, timeout_s: float = SHELL_S) -> ShellResult:
        """Runs a shell script on the phone; ``words`` are its ``$1``, ``$2`` and so on, whatever they contain.

        Raises :class:`DeviceError` where the phone goes away, is silent for ``timeout_s`` or says more than a mebibyte.
        """
        mark = secrets.token_hex(8)
        line = f"{shlex.join(['sh', '-c', script, 'sh', *words])}; echo {mark}$?"
        answer = self._read_answer(line, timeout_s).decode(errors="replace").replace("\r\n", "\n")
        output, marked, code = answer.rpartition(mark)
        if not marked or not re.fullmatch(r"\d{1,3}\n?", code):
            evidence = sanitize(answer[-200:]) or "it said nothing"
            raise DeviceError(f"the shell of {self.serial} broke off", evidence, "adb devices")
        return ShellResult(int(code), output)

    def read(self, script: str, *words: str, timeout_s: float = SHELL_S) -> str:
        """A script's output.  Raises :class:`DeviceError` where it fails, too."""
        result = self.run(script, *words, timeout_s=timeout_s)
        if result.code != 0:
            raise DeviceError(
                f"a command failed on {self.serial}, with exit code {result.code}",
                sanitize(result.output.strip()[-400:]) or "it said nothing",
                f"tvm-codl device shell-check --serial {self.serial}",
            )
        return result.output

    def _read_answer(self, line: str, timeout_s: float) -> bytes:
        data, deadline = bytearray(), time.monotonic() + timeout_s
        try:
            with self.adb.open_transport(timeout=timeout_s) as connection:
                connection.send_command(f"shell:{line}")
                connection.check_okay()
                while chunk := connection.conn.recv(1 << 16):
                    data += chunk
                    if len(data) > LARGEST_ANSWER:
                        raise DeviceError(f"{self.serial} says too much", f"over {LARGEST_ANSWER} bytes", "adb shell")
                    if time.monotonic() > deadline:
                        raise TimeoutError("timed out")
        except ADB_ERRORS as error:
            raise self.connection_error(error) from error
        return bytes(data)

    def connection_error(self, error: Exception) -> DeviceError:
        """The error for a phone that went away or does not answer."""
        evidence = sanitize(str(error)) or type(error).__name__
        return DeviceError(f"the phone {self.serial} does not answer over adb", evidence, "tvm-codl device ls")


def parse_entry(line: str) -> AdbEntry | None:
    """A line of ``devices-l``: ``SERIAL STATE KEY:VALUE...``; the state may be several words.  None for anything else."""
    serial, _, rest = line.strip().partition("\t" if "\t" in line else " ")
    words = f" {rest.strip()} "
    state = sanitize(_AFTER_STATE.split(words, maxsplit=1)[0].strip(), 80)
    if not _SERIAL.fullmatch(serial) or not (state in _STATES or state.startswith("no permissions")):
        return None
    model = re.search(r"\smodel:(\S{1,64})\s", words)
    return AdbEntry(serial, state, sanitize(model[1].replace("_", " ")) if model else "")


def sanitize(text: str, length: int = 400) -> str:
    """A phone's words made safe for a terminal: one line, no control characters, cut to a length."""
    return "".join(c if c.isprintable() else " " for c in text)[:length].strip()
