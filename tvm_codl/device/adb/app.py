"""The app on a phone: installed from an APK, nothing granted, nothing removed."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from tvm_codl.device.adb.connection import AdbPhone, plain
from tvm_codl.device.adb.push import FOLDER, push
from tvm_codl.errors import DeviceError, UsageError, UserError

INSTALL_S = 180.0
_PACKAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+")
_NEXT = {
    "INSTALL_FAILED_UPDATE_INCOMPATIBLE": "an app of another signature is there; remove it with its data: adb uninstall {package}",
    "INSTALL_FAILED_VERSION_DOWNGRADE": "a newer version is there; remove it with its data: adb uninstall {package}",
    "INSTALL_FAILED_USER_RESTRICTED": "allow installing over USB in the phone's developer options",
    "INSTALL_FAILED_NO_MATCHING_ABIS": "the phone is not arm64-v8a: tvm-codl device shell-check",
    "INSTALL_FAILED_OLDER_SDK": "the app needs Android 7 (API 24)",
}


class Installed(msgspec.Struct, frozen=True):
    """An app on a phone: what was there before, and what is now (version name and code)."""

    package: str
    before: str
    version: str


def install(phone: AdbPhone, apk: Path, package: str, folder: str = FOLDER) -> Installed:
    """Installs over an older version, keeps its data, grants no permission: the phone asks its owner.

    Raises :class:`UserError` for what is no APK, :class:`DeviceError` with the package manager's word where it refuses.
    """
    if not _PACKAGE.fullmatch(package):
        raise UsageError(f"{package!r} is no name of an Android package", "", "for example org.example.app")
    try:
        with apk.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise UserError(
            f"{apk} cannot be read", str(error), "python -m rpc_apps.android_rpc.build_apk, or --apk FILE"
        ) from error
    if start != b"PK\x03\x04":
        raise UserError(
            f"{apk} is no APK", f"it starts with {start!r}", "python -m rpc_apps.android_rpc.build_apk, or --apk FILE"
        )
    before = version(phone, package)
    (sent,) = push(phone, {"app.apk": apk}, folder)
    try:
        done = phone.run('pm install -r "$1" 2>&1', sent.path, timeout_s=INSTALL_S)
    finally:
        phone.run('rm -f "$1"', sent.path)
    if done.code != 0 or "Success" not in done.output:
        word = re.search(r"INSTALL_[A-Z_]+", done.output)
        remedy = _NEXT.get(word[0] if word else "", "adb logcat -d | grep PackageManager").format(package=package)
        raise DeviceError(f"{phone.serial} does not install {apk.name}", plain(done.output) or "no answer", remedy)
    now = version(phone, package)
    if not now:
        raise DeviceError(
            f"{apk.name} was installed, but {phone.serial} has no {package}",
            "",
            "name the APK's own package: --package NAME",
        )
    return Installed(package, before, now)


def version(phone: AdbPhone, package: str) -> str:
    """``1.0 (7)`` where the app is there, else empty."""
    told = phone.run('dumpsys package "$1" 2>/dev/null | grep -E "version(Name|Code)="', package).output
    name, code = re.search(r"versionName=(\S{1,64})", told), re.search(r"versionCode=(\d{1,10})", told)
    return plain(f"{name[1]} ({code[1]})") if name and code else ""
