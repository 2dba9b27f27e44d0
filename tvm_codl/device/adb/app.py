"""Installs the app from an APK; grants and removes nothing."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from tvm_codl.device.adb.connection import AdbPhone, sanitize
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
    """An app on a phone; ``before`` is the version that it replaced, each as ``1.0 (7)``."""

    package: str
    before: str
    version: str


def install(phone: AdbPhone, apk: Path, package: str, folder: str = FOLDER) -> Installed:
    """Installs over an older version, keeps its data, grants no permission: the phone asks its owner.

    Raises :class:`UserError` for a file that is no APK, :class:`DeviceError` with the package manager's words where it
    refuses.
    """
    if not _PACKAGE.fullmatch(package):
        raise UsageError(f"{package!r} is not the name of an Android package", "", "for example org.example.app")
    build = "python -m rpc_apps.android_rpc.build_apk, or --apk FILE"
    try:
        with apk.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise UserError(f"{apk} cannot be read", str(error), build) from error
    if start != b"PK\x03\x04":
        raise UserError(f"{apk} is no APK", f"it starts with {start!r}", build)
    before = read_version(phone, package)
    (sent,) = push(phone, {"app.apk": apk}, folder)
    try:
        result = phone.run('pm install -r "$1" 2>&1', sent.path, timeout_s=INSTALL_S)
    finally:
        phone.run('rm -f "$1"', sent.path)
    if result.code != 0 or "Success" not in result.output:
        reason = re.search(r"INSTALL_[A-Z_]+", result.output)
        remedy = _NEXT.get(reason[0] if reason else "", "adb logcat -d | grep PackageManager").format(package=package)
        evidence = sanitize(result.output) or "no answer"
        raise DeviceError(f"{phone.serial} does not install {apk.name}", evidence, remedy)
    version = read_version(phone, package)
    if not version:
        what = f"{apk.name} was installed, but {phone.serial} has no {package}"
        raise DeviceError(what, "", "name the APK's own package: --package NAME")
    return Installed(package, before, version)


def read_version(phone: AdbPhone, package: str) -> str:
    """``1.0 (7)`` where the app is installed, else empty."""
    output = phone.run('dumpsys package "$1" 2>/dev/null | grep -E "version(Name|Code)="', package).output
    name, code = re.search(r"versionName=(\S{1,64})", output), re.search(r"versionCode=(\d{1,10})", output)
    return sanitize(f"{name[1]} ({code[1]})") if name and code else ""
