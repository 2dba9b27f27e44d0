"""Whether the shell of a phone can serve: each thing that is needed, with the next step where it is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from tvm_codl.device.adb.connection import AdbPhone, plain
from tvm_codl.device.adb.push import FOLDER

NEEDED_MB = 200
WARM_C, HOT_C = 38.0, 45.0
#: Where Android keeps its OpenCL: what the runtime tries (runtime/native/opencl/loader.cc), /vendor by its two names.
LIBRARIES = (
    "/vendor/lib64/libOpenCL.so",
    "/system/vendor/lib64/libOpenCL.so",
    "/system/lib64/libOpenCL.so",
    "/system/vendor/lib64/egl/libGLES_mali.so",
    "/vendor/lib64/egl/libGLES_mali.so",
    "/system/vendor/lib64/libPVROCL.so",
)
#: A Pixel's, which hands out its functions in a way of its own: the runtime does not try it.
PIXEL = "/vendor/lib64/libOpenCL-pixel.so"
_PROGRAMS = ("sha256sum", "setsid", "sed", "dd", "tail", "df", "mkdir", "chmod", "mv")


class PhoneCheck(msgspec.Struct, frozen=True):
    """One thing that was looked at.  ``needed``: the phone cannot serve without it; without the rest less or slower."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    needed: bool = True


def checks(phone: AdbPhone, folder: str = FOLDER) -> Iterator[PhoneCheck]:
    """Each as it is known.  Raises :class:`~tvm_codl.errors.DeviceError` where the phone goes away."""
    yield _abi(phone)
    yield _programs(phone)
    yield _folder(phone, folder)
    yield _space(phone, folder)
    yield _opencl(phone)
    yield _selinux(phone)
    yield _temperature(phone)
    yield _governor(phone)
    yield _saving(phone)


def _said(phone: AdbPhone, script: str, *words: str) -> str:
    return plain(phone.run(script, *words).output, 300)


def _abi(phone: AdbPhone) -> PhoneCheck:
    listed = _said(phone, "getprop ro.product.cpu.abilist 2>/dev/null") or _said(phone, "uname -m")
    ok = "arm64-v8a" in listed.split(",") or listed == "aarch64"
    remedy = (
        ""
        if ok
        else "only arm64-v8a is supported: take another phone, or build the server for this one and push --server FILE"
    )
    return PhoneCheck("arm64-v8a", ok, listed or "unknown", remedy)


def _programs(phone: AdbPhone) -> PhoneCheck:
    missing = _said(phone, 'for one; do command -v "$one" >/dev/null || echo "$one"; done', *_PROGRAMS)
    remedy = "an old Android's toolbox lacks them: run the app instead (tvm-codl device install)"
    return PhoneCheck(
        "shell programs", not missing, f"missing: {missing}" if missing else "all there", remedy if missing else ""
    )


def _folder(phone: AdbPhone, folder: str) -> PhoneCheck:
    script = """
mkdir -p "$1" && cd "$1" || exit 1
probe=.probe-$$
trap 'rm -f "$probe"' EXIT
printf '#!%s\\necho 6 times 7 is $((6 * 7))\\n' "$(command -v sh)" >"$probe" && chmod 755 "$probe" && ./"$probe"
"""
    done = phone.run(script, folder)
    ok = done.code == 0 and done.output.strip() == "6 times 7 is 42"
    found = f"{folder}: files can be written and executed" if ok else f"{folder}: {plain(done.output) or 'no answer'}"
    remedy = f"adb shell ls -ldZ {folder}; a file that root left there: adb shell rm -r {folder}; else another --folder"
    return PhoneCheck("folder", ok, found, "" if ok else remedy)


def _space(phone: AdbPhone, folder: str) -> PhoneCheck:
    told = phone.run('df -k "$1" 2>/dev/null || df "$1"', folder).output
    match = re.search(r"\s(\d{1,15})\s+\d{1,3}%", told)
    free = int(match[1]) // 1024 if match else 0
    ok = free >= NEEDED_MB
    found = f"{free} MB free" if match else f"unknown: {plain(told, 100)}"
    return PhoneCheck(
        "free space", ok, found, "" if ok else f"free {NEEDED_MB} MB on the phone (large models want more)"
    )


def _opencl(phone: AdbPhone) -> PhoneCheck:
    """The linker of a shell process looks in LD_LIBRARY_PATH, then in its own places; the runtime asks for paths, too."""
    script = """
IFS=:
for place in $LD_LIBRARY_PATH; do [ -r "$place/libOpenCL.so" ] && echo "$place/libOpenCL.so" && exit 0; done
for path; do [ -r "$path" ] && echo "$path" && exit 0; done
exit 1
"""
    done = phone.run(script, *LIBRARIES, PIXEL)
    path = plain(done.output, 200)
    there = done.code == 0 and path.startswith("/")
    if there and path != PIXEL:
        return PhoneCheck("libOpenCL.so", True, path, needed=False)
    nowhere = "not in LD_LIBRARY_PATH, /vendor/lib64 or /system/lib64"
    remedy = (
        "only the phone's CPU is served without it; some makers ship none, or under another name: "
        "adb shell find /vendor /system -name '*OpenCL*'"
    )
    found = f"{path}, which the runtime cannot use" if there else nowhere
    return PhoneCheck("libOpenCL.so", False, found, remedy, needed=False)


def _selinux(phone: AdbPhone) -> PhoneCheck:
    mode, domain = _said(phone, "getenforce 2>/dev/null"), _said(phone, "cat /proc/self/attr/current 2>/dev/null")
    found = f"{mode or 'unknown'}, {domain or 'no domain'}"
    # Enforcing is what phones are; a shell may run files below /data/local/tmp all the same.
    ok = mode != "Enforcing" or not domain or ":shell:" in domain or ":su:" in domain
    remedy = "see what was denied: adb shell 'dmesg; logcat -d' | grep avc"
    return PhoneCheck("SELinux", ok, found, "" if ok else remedy, needed=False)


def _temperature(phone: AdbPhone) -> PhoneCheck:
    told = phone.run("dumpsys battery 2>/dev/null | grep temperature").output
    tenths = re.search(r"temperature:\s*(\d{1,4})\b", told)
    if not tenths:
        return PhoneCheck("temperature", True, "the battery's is not told", needed=False)
    degrees = int(tenths[1]) / 10
    ok = degrees < WARM_C
    word = "cool" if ok else "warm" if degrees < HOT_C else "hot"
    remedy = "" if ok else "let it cool before measuring: a warm phone lowers its clocks"
    return PhoneCheck("temperature", ok, f"battery {degrees:g} °C, {word}", remedy, needed=False)


def _governor(phone: AdbPhone) -> PhoneCheck:
    told = phone.run("cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor 2>/dev/null").output
    kinds = sorted({plain(line, 32) for line in told.splitlines() if line.strip()})
    ok = "powersave" not in kinds
    remedy = "" if ok else "switch off power saving; with root: echo schedutil > .../cpufreq/scaling_governor"
    return PhoneCheck("CPU governor", ok, ", ".join(kinds) or "not told", remedy, needed=False)


def _saving(phone: AdbPhone) -> PhoneCheck:
    told = _said(phone, "settings get global low_power 2>/dev/null")
    ok = told != "1"
    remedy = "" if ok else "adb shell settings put global low_power 0   (or unplug and charge it first)"
    return PhoneCheck(
        "battery saver", ok, "on" if not ok else "off" if told == "0" else "not told", remedy, needed=False
    )
