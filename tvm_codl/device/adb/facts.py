"""The profile of a phone, as far as its shell can tell it; what only its OpenCL knows comes from the server there.

The files of /proc and /sys are copied as text and read by the same code as on the reference phone.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import msgspec

from tvm_codl.device import cpu
from tvm_codl.device.adb.connection import AdbPhone, plain
from tvm_codl.device.profile import DeviceProfile

FACTS_S = 60.0
_CORE = r"cpu\d{1,4}"
#: The files that :mod:`tvm_codl.device.cpu` reads; a phone may name no other.
_FILE = re.compile(
    rf"cpuinfo|{_CORE}/(?:cpu_capacity|cpufreq/cpuinfo_max_freq|cache/index\d{{1,2}}/(?:level|size|type|shared_cpu_list))"
)
_HEAD = "=== "

_CPU = f"""
cat_one() {{ [ -r "$2" ] && echo "{_HEAD}$1" && cat "$2" && echo; }}
cat_one cpuinfo /proc/cpuinfo
cd /sys/devices/system/cpu || exit 0
for core in cpu[0-9]*; do
    [ -d "$core" ] || continue
    echo "{_HEAD}$core/cpu_capacity"; cat "$core/cpu_capacity" 2>/dev/null
    cat_one "$core/cpufreq/cpuinfo_max_freq" "$core/cpufreq/cpuinfo_max_freq"
    for file in "$core"/cache/index[0-9]*/level "$core"/cache/index[0-9]*/size "$core"/cache/index[0-9]*/type \\
        "$core"/cache/index[0-9]*/shared_cpu_list; do cat_one "$file" "$file"; done
done
true
"""

_REST = f"""
for name in ro.product.manufacturer ro.product.model ro.soc.manufacturer ro.soc.model ro.board.platform \\
    ro.product.cpu.abi ro.build.version.release; do echo "{_HEAD}$name"; getprop "$name" 2>/dev/null; done
echo "{_HEAD}machine"; uname -m
echo "{_HEAD}gles"; dumpsys SurfaceFlinger 2>/dev/null | grep -m 1 GLES:
for file in /sys/class/kgsl/kgsl-3d0/gpu_model /sys/class/kgsl/kgsl-3d0/max_gpuclk \\
    /sys/class/misc/mali0/device/gpuinfo; do
    echo "{_HEAD}${{file##*/}}"; cat "$file" 2>/dev/null; echo
done
echo "{_HEAD}devfreq"
for file in /sys/class/devfreq/*mali*/max_freq /sys/class/devfreq/*.gpu/max_freq /sys/class/devfreq/*gpu*/max_freq; do
    [ -r "$file" ] && cat "$file"
done
echo "{_HEAD}memory"; grep -m 1 MemTotal: /proc/meminfo
true
"""
_ARCH = {"arm64-v8a": "aarch64", "armeabi-v7a": "armv7l", "x86_64": "x86_64", "x86": "i686"}
_TRIPLE = {"aarch64": "aarch64-linux-android", "armv7l": "armv7a-linux-androideabi", "x86_64": "x86_64-linux-android"}
#: Linux's names for what an arm64 core can do, and LLVM's.
_FEATURES = {"asimd": "+neon", "asimddp": "+dotprod", "fphp": "+fullfp16", "i8mm": "+i8mm"}


def shell_profile(phone: AdbPhone) -> DeviceProfile:
    """What the phone's shell tells: CPU, clocks and caches, the GPU's name and clock, and its compute units on Mali.

    Raises :class:`~tvm_codl.errors.DeviceError` where the phone goes away.
    """
    files = _sections(phone.read(_CPU, timeout_s=FACTS_S))
    told = {name: plain(text.strip(), 300) for name, text in _sections(phone.read(_REST, timeout_s=FACTS_S)).items()}
    with tempfile.TemporaryDirectory(prefix="tvm-codl-facts-") as folder:
        system = Path(folder, "system")
        system.mkdir()
        for name, text in files.items():
            if _FILE.fullmatch(name):
                path = Path(folder, name) if name == "cpuinfo" else system / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        clusters = cpu.clusters(system, Path(folder, "cpuinfo"))
        caches = cpu.caches(system)
    arch = _ARCH.get(told.get("ro.product.cpu.abi", ""), "") or told.get("machine", "")
    gpu = _gpu_name(told)
    return DeviceProfile(
        name=_name(told) or phone.about.model or phone.serial,
        arch=arch,
        cpu_name=_chip(told)
        or _words(files.get("cpuinfo", ""), "Hardware")
        or _words(files.get("cpuinfo", ""), "model name"),
        cpu_cores=tuple(sorted(core for cluster in clusters for core in cluster.cores)),
        cpu_target=_cpu_target(arch, files.get("cpuinfo", "")),
        gpu_name=gpu,
        gpu_target="opencl -device=adreno" if "adreno" in gpu.lower() else "opencl -device=mali",
        compute_units=_cores_of_mali(told.get("gpuinfo", "")),
        clusters=clusters,
        caches=caches,
        gpu_mhz=_hertz(told.get("max_gpuclk", "")) or _hertz(told.get("devfreq", "")),
    )


def merged(shell: DeviceProfile, server: DeviceProfile) -> DeviceProfile:
    """The server's profile; what it does not know is filled in from the shell's."""
    gaps = {name: getattr(shell, name) for name in shell.__struct_fields__ if _unknown(getattr(server, name))}
    return msgspec.structs.replace(server, **gaps)


def _unknown(value: object) -> bool:
    """False is a fact."""
    return value is not False and value in ("", 0, ())


def to_yaml(profile: DeviceProfile) -> str:
    """One line a fact, clusters and caches as lists; what is not known is left out.

    CoDL's files are made by :func:`~tvm_codl.device.profile.soc_yaml`.
    """
    # What is as by default is left out by msgspec already; False is a fact where True is the default.
    told = msgspec.to_builtins(profile).items()
    facts = {name: value for name, value in told if not _unknown(value) and value != []}
    return msgspec.yaml.encode(facts).decode()


def _sections(text: str) -> dict[str, str]:
    """``=== NAME`` lines and what follows each."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith(_HEAD):
            name = line.removeprefix(_HEAD).strip()
            found.setdefault(name, "")
        elif name:
            found[name] += line + "\n"
    return found


def _name(told: dict[str, str]) -> str:
    maker, model = told.get("ro.product.manufacturer", ""), told.get("ro.product.model", "")
    return model if model.lower().startswith(maker.lower()) else f"{maker} {model}".strip()


def _chip(told: dict[str, str]) -> str:
    named = f"{told.get('ro.soc.manufacturer', '')} {told.get('ro.soc.model', '')}".strip()
    return named or told.get("ro.board.platform", "")


def _words(cpuinfo: str, name: str) -> str:
    match = re.search(rf"^{name}\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return plain(match[1], 100) if match else ""


def _cpu_target(arch: str, cpuinfo: str) -> str:
    """What every core can do: a thread may run on any of them."""
    if arch not in _TRIPLE:
        return "llvm"
    target = f"llvm -mtriple={_TRIPLE[arch]}"
    if arch != "aarch64":
        return target
    lines = [set(line.partition(":")[2].split()) for line in cpuinfo.splitlines() if line.startswith("Features")]
    common = set.intersection(*lines) if lines else set()
    return f"{target} -mattr=" + ",".join(
        ["+neon", *(name for word, name in _FEATURES.items() if word in common - {"asimd"})]
    )


def _gpu_name(told: dict[str, str]) -> str:
    """From the driver (``GLES: Qualcomm, Adreno (TM) 640, OpenGL ES 3.2 ...``), else from the kernel."""
    words = told.get("gles", "").partition("GLES:")[2].split(",")
    if len(words) >= 2:
        return words[1].strip()
    return told.get("gpu_model", "") or told.get("gpuinfo", "").partition(" ")[0]


def _cores_of_mali(text: str) -> int:
    """``Mali-G76 12 cores r0p0 0x72121001``: OpenCL's compute units are these cores."""
    match = re.search(r"\b(\d{1,3}) cores\b", text)
    return int(match[1]) if match else 0


def _hertz(text: str) -> int:
    """MHz of the first number, in Hz."""
    match = re.match(r"(\d{7,11})\b", text)
    return int(match[1]) // 1_000_000 if match else 0
