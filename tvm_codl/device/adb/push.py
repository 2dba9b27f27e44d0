"""Files on a phone: sent once, checked there, put in place when they are whole."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tvm_codl.device.adb.connection import BROKEN, AdbPhone
from tvm_codl.errors import DeviceError, UsageError, UserError

#: The one folder whose files the shell of any phone may write and execute.
FOLDER = "/data/local/tmp/tvm_codl"
#: The server's name there, whatever its file is called here.
SERVER = "tvm_codl_server"
_FOLDER = re.compile(r"(/[A-Za-z0-9._+-]+)+")
_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+-]{0,127}")
_SUM = re.compile(r"([0-9a-f]{64}) [ *](\S+)")
#: Seconds to wait at most while a phone computes checksums.
SUM_S = 120.0


class Pushed(msgspec.Struct, frozen=True):
    """A file on the phone: its path there, its size, its checksum, and whether it had to be sent."""

    path: str
    bytes: int
    sha256: str
    sent: bool


def folder_path(text: str) -> str:
    """A folder on the phone.  Raises :class:`UsageError` for a name that is no plain absolute path."""
    if not _FOLDER.fullmatch(text) or any(part in (".", "..") for part in text.split("/")):
        raise UsageError(f"{text!r} is no folder on a phone", "", f"for example {FOLDER}")
    return text


def push(phone: AdbPhone, files: Mapping[str, Path], folder: str = FOLDER) -> list[Pushed]:
    """Puts files under these names into ``folder``, executable, and sends only what is not there yet.

    A file is sent beside its place, compared by checksum on the phone, and then moved: a broken transfer leaves the old file.
    Raises :class:`UserError` for a file that cannot be read or a name that does not fit, :class:`DeviceError` where a
    transfer fails.
    """
    wanted = {name: _sum(name, path) for name, path in files.items()}
    there = _sums(phone, folder, list(files))
    done = []
    for name, path in files.items():
        send = there.get(name) != wanted[name]
        if send:
            _send(phone, path, folder, name, wanted[name])
        done.append(Pushed(f"{folder}/{name}", path.stat().st_size, wanted[name], send))
    phone.read('cd "$1" && shift && chmod 755 "$@"', folder, *files)
    return done


def _sum(name: str, path: Path) -> str:
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} is no name for a file on a phone", str(path), "rename it: letters, digits, . _ + -")
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read", str(error)) from error


def _sums(phone: AdbPhone, folder: str, names: list[str]) -> dict[str, str]:
    """The checksums of those of these files that are there."""
    script = 'mkdir -p "$1" && cd "$1" && shift && for f; do [ ! -f "$f" ] || sha256sum "$f" || exit 1; done'
    told = phone.read(script, folder, *names, timeout_s=SUM_S)
    return {match[2]: match[1] for line in told.splitlines() if (match := _SUM.fullmatch(line.strip()))}


def _send(phone: AdbPhone, path: Path, folder: str, name: str, checksum: str) -> None:
    partial = f".{name}.part"
    try:
        phone.adb.sync.push(path, f"{folder}/{partial}", mode=0o755)
    except BROKEN as error:
        raise DeviceError(
            f"{path.name} cannot be sent to {folder} on {phone.serial}",
            str(error) or type(error).__name__,
            f"tvm-codl device shell-check --serial {phone.serial}",
        ) from error
    arrived = _sums(phone, folder, [partial]).get(partial)
    if arrived != checksum:
        raise DeviceError(
            f"{path.name} did not arrive whole on {phone.serial}",
            f"sha256 {checksum[:12]}... here, {(arrived or 'no file')[:12]} there",
            f"tvm-codl device shell-check --serial {phone.serial}   (free space), then push again",
        )
    phone.read('cd "$1" && mv -f "$2" "$3"', folder, partial, name)
