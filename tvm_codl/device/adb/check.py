"""Checks whether a phone's shell can run the server, with the next step for each failure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from tvm_codl.device.adb.connection import AdbPhone, sanitize
from tvm_codl.device.adb.push import FOLDER

NEEDED_MB = 200
WARM_C, HOT_C = 38.0, 45.0
#: Where Android keeps its OpenCL: the paths that the runtime tries (runtime/native/opencl/loader.cc).
LIBRARIES = (
    "/vendor/lib64/libOpenCL.so",
    "/system/vendor/lib64/libOpenCL.so",
    "/system/lib64/libOpenCL.so",
    "/system/vendor/lib64/egl/libGLES_mali.so",
    "/vendor/lib64/egl/libGLES_mali.so",
    "/system/vendor/lib64/libPVROCL.so",
)
#: A Pixel's OpenCL exports its functions differently; the runtime does not try it.
PIXEL = "/vendor/lib64/libOpenCL-pixel.so"
_PROGRAMS = ("sha256sum", "setsid", "sed", "dd", "tail", "df", "mkdir", "chmod", "mv")
#: Whether a check passed, what it found, and what to do if it failed.
_Finding = tuple[bool, str, str]


class PhoneCheck(msgspec.Struct, frozen=True):
    """One check.  ``needed``: the phone cannot serve without it; otherwise it serves less or slower."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    needed: bool = True


def run_checks(phone: AdbPhone, folder: str = FOLDER) -> Iterator[PhoneCheck]:
    """Yields each result at once.  Raises :class:`~tvm_codl.errors.DeviceError` where the phone goes away."""
    checks: tuple[tuple[str, bool, Callable[[], _Finding]], ...] = (
        ("arm64-v8a", True, lambda: _check_abi(phone)),
        ("shell programs", True, lambda: _check_programs(phone)),
        ("folder", True, lambda: _check_folder(phone, folder)),
        ("free space", True, lambda: _check_space(phone, folder)),
        ("libOpenCL.so", False, lambda: _check_opencl(phone)),
        ("SELinux", False, lambda: _check_selinux(phone)),
        ("temperature", False, lambda: _check_temperature(phone)),
        ("CPU governor", False, lambda: _check_governor(phone)),
        ("battery saver", False, lambda: _check_battery_saver(phone)),
    )
    for name, needed, check in checks:
        ok, found, remedy = check()
        yield PhoneCheck(name, ok, found, "" if ok else remedy, needed)


def _ask(phone: AdbPhone, script: str, *words: str) -> str:
    return sanitize(phone.run(script, *words).output, 300)


def _check_abi(phone: AdbPhone) -> _Finding:
    abis = _ask(phone, "getprop ro.product.cpu.abilist 2>/dev/null") or _ask(phone, "uname -m")
    remedy = "only arm64-v8a is supported: take another phone, or build the server for this one and push --server FILE"
    return "arm64-v8a" in abis.split(",") or abis == "aarch64", abis or "unknown", remedy


def _check_programs(phone: AdbPhone) -> _Finding:
    missing = _ask(phone, 'for one; do command -v "$one" >/dev/null || echo "$one"; done', *_PROGRAMS)
    remedy = "an old Android's toolbox lacks them: run the app instead (tvm-codl device install)"
    return not missing, f"missing: {missing}" if missing else "all there", remedy


def _check_folder(phone: AdbPhone, folder: str) -> _Finding:
    script = """
mkdir -p "$1" && cd "$1" || exit 1
probe=.probe-$$
trap 'rm -f "$probe"' EXIT
printf '#!%s\\necho 6 times 7 is $((6 * 7))\\n' "$(command -v sh)" >"$probe" && chmod 755 "$probe" && ./"$probe"
"""
    result = phone.run(script, folder)
    ok = result.code == 0 and result.output.strip() == "6 times 7 is 42"
    found = "files can be written and executed" if ok else sanitize(result.output) or "no answer"
    remedy = f"adb shell ls -ldZ {folder}; a file that root left there: adb shell rm -r {folder}; else another --folder"
    return ok, f"{folder}: {found}", remedy


def _check_space(phone: AdbPhone, folder: str) -> _Finding:
    output = phone.run('df -k "$1" 2>/dev/null || df "$1"', folder).output
    match = re.search(r"\s(\d{1,15})\s+\d{1,3}%", output)
    free = int(match[1]) // 1024 if match else 0
    found = f"{free} MB free" if match else f"unknown: {sanitize(output, 100)}"
    return free >= NEEDED_MB, found, f"free {NEEDED_MB} MB on the phone (large models want more)"


def _check_opencl(phone: AdbPhone) -> _Finding:
    """A shell process's linker searches LD_LIBRARY_PATH first; the runtime then tries the paths of ``LIBRARIES``."""
    script = """
IFS=:
for place in $LD_LIBRARY_PATH; do [ -r "$place/libOpenCL.so" ] && echo "$place/libOpenCL.so" && exit 0; done
for path; do [ -r "$path" ] && echo "$path" && exit 0; done
exit 1
"""
    result = phone.run(script, *LIBRARIES, PIXEL)
    path = sanitize(result.output, 200)
    exists = result.code == 0 and path.startswith("/")
    if exists and path != PIXEL:
        return True, path, ""
    nowhere = "not in LD_LIBRARY_PATH, /vendor/lib64 or /system/lib64"
    remedy = (
        "only the phone's CPU is served without it; some makers ship none, or under another name: "
        "adb shell find /vendor /system -name '*OpenCL*'"
    )
    return False, f"{path}, which the runtime cannot use" if exists else nowhere, remedy


def _check_selinux(phone: AdbPhone) -> _Finding:
    mode, domain = _ask(phone, "getenforce 2>/dev/null"), _ask(phone, "cat /proc/self/attr/current 2>/dev/null")
    # Phones enforce; a shell may still run files below /data/local/tmp.
    ok = mode != "Enforcing" or not domain or ":shell:" in domain or ":su:" in domain
    remedy = "see what was denied: adb shell 'dmesg; logcat -d' | grep avc"
    return ok, f"{mode or 'unknown'}, {domain or 'no domain'}", remedy


def _check_temperature(phone: AdbPhone) -> _Finding:
    output = phone.run("dumpsys battery 2>/dev/null | grep temperature").output
    tenths = re.search(r"temperature:\s*(\d{1,4})\b", output)
    if not tenths:
        return True, "the battery reports none", ""
    degrees = int(tenths[1]) / 10
    word = "cool" if degrees < WARM_C else "warm" if degrees < HOT_C else "hot"
    remedy = "let it cool before measuring: a warm phone lowers its clocks"
    return degrees < WARM_C, f"battery {degrees:g} °C, {word}", remedy


def _check_governor(phone: AdbPhone) -> _Finding:
    output = phone.run("cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor 2>/dev/null").output
    governors = sorted({sanitize(line, 32) for line in output.splitlines() if line.strip()})
    remedy = "switch off power saving; with root: echo schedutil > .../cpufreq/scaling_governor"
    return "powersave" not in governors, ", ".join(governors) or "not reported", remedy


def _check_battery_saver(phone: AdbPhone) -> _Finding:
    setting = _ask(phone, "settings get global low_power 2>/dev/null")
    remedy = "adb shell settings put global low_power 0   (or unplug and charge it first)"
    return setting != "1", {"1": "on", "0": "off"}.get(setting, "not reported"), remedy
