"""Puts files on a phone: sends each once, checks it there, then moves it into place."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tvm_codl.device.adb.connection import ADB_ERRORS, AdbPhone
from tvm_codl.errors import DeviceError, UsageError, UserError

#: The folder in which the shell of any phone may write and execute files.
FOLDER = "/data/local/tmp/tvm_codl"
#: The server's name on the phone.
SERVER = "tvm_codl_server"
_FOLDER = re.compile(r"(/[A-Za-z0-9._+-]+)+")
_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+-]{0,127}")
_SUM = re.compile(r"([0-9a-f]{64}) [ *](\S+)")
SUM_S = 120.0  # time limit for checksums


class Pushed(msgspec.Struct, frozen=True):
    """A file on the phone: its path there, its size, its checksum, and whether it had to be sent."""

    path: str
    bytes: int
    sha256: str
    sent: bool


def check_folder(text: str) -> str:
    """``text``, if it is a folder on a phone: a plain absolute path.  Raises :class:`UsageError`."""
    if not _FOLDER.fullmatch(text) or any(part in (".", "..") for part in text.split("/")):
        raise UsageError(f"{text!r} is not a folder on a phone", "", f"for example {FOLDER}")
    return text


def push(phone: AdbPhone, files: Mapping[str, Path], folder: str = FOLDER) -> list[Pushed]:
    """Puts files under these names into ``folder``, executable; sends only what is missing or differs.

    Each file is sent under another name, compared by checksum on the phone, then moved: a broken transfer keeps the old
    file.  Raises :class:`UserError` for a file that cannot be read or a bad name, :class:`DeviceError` where a transfer
    fails.
    """
    wanted = {name: _hash_file(name, path) for name, path in files.items()}
    present = _hash_on_phone(phone, folder, list(files))
    for name, path in files.items():
        if present.get(name) != wanted[name]:
            _send(phone, path, folder, name, wanted[name])
    phone.read('cd "$1" && shift && chmod 755 "$@"', folder, *files)
    return [
        Pushed(f"{folder}/{name}", path.stat().st_size, wanted[name], present.get(name) != wanted[name])
        for name, path in files.items()
    ]


def _hash_file(name: str, path: Path) -> str:
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} is no file name for a phone", str(path), "rename it: letters, digits, . _ + -")
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read", str(error)) from error


def _hash_on_phone(phone: AdbPhone, folder: str, names: list[str]) -> dict[str, str]:
    """The checksums of those files that exist."""
    script = 'mkdir -p "$1" && cd "$1" && shift && for f; do [ ! -f "$f" ] || sha256sum "$f" || exit 1; done'
    output = phone.read(script, folder, *names, timeout_s=SUM_S)
    return {match[2]: match[1] for line in output.splitlines() if (match := _SUM.fullmatch(line.strip()))}


def _send(phone: AdbPhone, path: Path, folder: str, name: str, checksum: str) -> None:
    partial = f".{name}.part"
    check = f"tvm-codl device shell-check --serial {phone.serial}"
    try:
        phone.adb.sync.push(path, f"{folder}/{partial}", mode=0o755)
    except ADB_ERRORS as error:
        what = f"{path.name} cannot be sent to {folder} on {phone.serial}"
        raise DeviceError(what, str(error) or type(error).__name__, check) from error
    arrived = _hash_on_phone(phone, folder, [partial]).get(partial)
    if arrived != checksum:
        raise DeviceError(
            f"{path.name} did not arrive whole on {phone.serial}",
            f"sha256 {checksum[:12]}... here, {(arrived or 'no file')[:12]} there",
            f"{check}   (free space), then push again",
        )
    phone.read('cd "$1" && mv -f "$2" "$3"', folder, partial, name)
