"""A phone's profile from its shell; facts that only OpenCL knows come from the server on the phone.

The text of files in /proc and /sys is parsed by the same code as on the reference phone.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tvm_codl.device import cpu
from tvm_codl.device.adb.connection import AdbPhone, sanitize
from tvm_codl.device.profile import DeviceProfile

FACTS_S = 60.0
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
#: LLVM's names for Linux's names of arm64 features, beside NEON.
_FEATURES = {"asimddp": "+dotprod", "fphp": "+fullfp16", "i8mm": "+i8mm"}


def read_shell_profile(phone: AdbPhone) -> DeviceProfile:
    """What the phone's shell reports: CPU, clocks and caches, the GPU's name and clock, and its compute units on Mali.

    Raises :class:`~tvm_codl.errors.DeviceError` where the phone goes away.
    """
    files = _split_sections(phone.read(_CPU, timeout_s=FACTS_S))
    rest = _split_sections(phone.read(_REST, timeout_s=FACTS_S))
    facts = {name: sanitize(text.strip(), 300) for name, text in rest.items()}
    clusters, cpuinfo = cpu.clusters(files), files.get("cpuinfo", "")
    arch = _ARCH.get(facts.get("ro.product.cpu.abi", ""), "") or facts.get("machine", "")
    gpu = _gpu_name(facts)
    return DeviceProfile(
        name=_phone_name(facts) or phone.entry.model or phone.serial,
        arch=arch,
        cpu_name=_chip_name(facts) or _cpuinfo_line(cpuinfo, "Hardware") or _cpuinfo_line(cpuinfo, "model name"),
        cpu_cores=tuple(sorted(core for cluster in clusters for core in cluster.cores)),
        cpu_target=_cpu_target(arch, cpuinfo),
        gpu_name=gpu,
        gpu_target="opencl -device=adreno" if "adreno" in gpu.lower() else "opencl -device=mali",
        compute_units=_mali_cores(facts.get("gpuinfo", "")),
        clusters=clusters,
        caches=cpu.caches(files),
        gpu_mhz=_parse_mhz(facts.get("max_gpuclk", "")) or _parse_mhz(facts.get("devfreq", "")),
    )


def merge_profiles(shell: DeviceProfile, server: DeviceProfile) -> DeviceProfile:
    """The server's profile, its gaps filled from the shell's."""
    gaps = {name: getattr(shell, name) for name in shell.__struct_fields__ if _unknown(getattr(server, name))}
    return msgspec.structs.replace(server, **gaps)


def _unknown(value: object) -> bool:
    """False is a fact."""
    return value is not False and value in ("", 0, ())


def known_facts(facts: msgspec.Struct) -> dict[str, Any]:
    """What is known, by name."""
    # msgspec leaves defaults out already; False is a fact where True is the default.
    return {name: value for name, value in msgspec.to_builtins(facts).items() if not _unknown(value) and value != []}


def facts_to_yaml(facts: dict[str, Any]) -> str:
    """One line for each fact; clusters and caches as lists."""
    return msgspec.yaml.encode(facts).decode()


def _split_sections(text: str) -> dict[str, str]:
    """``=== NAME`` lines and the text after each."""
    sections: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith(_HEAD):
            name = line.removeprefix(_HEAD).strip()
            sections.setdefault(name, "")
        elif name:
            sections[name] += line + "\n"
    return sections


def _phone_name(facts: dict[str, str]) -> str:
    maker, model = facts.get("ro.product.manufacturer", ""), facts.get("ro.product.model", "")
    return model if model.lower().startswith(maker.lower()) else f"{maker} {model}".strip()


def _chip_name(facts: dict[str, str]) -> str:
    soc = f"{facts.get('ro.soc.manufacturer', '')} {facts.get('ro.soc.model', '')}".strip()
    return soc or facts.get("ro.board.platform", "")


def _cpuinfo_line(cpuinfo: str, name: str) -> str:
    match = re.search(rf"^{name}\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return sanitize(match[1], 100) if match else ""


def _cpu_target(arch: str, cpuinfo: str) -> str:
    """With the features that every core has: a thread may run on any of them."""
    if arch not in _TRIPLE:
        return "llvm"
    target = f"llvm -mtriple={_TRIPLE[arch]}"
    if arch != "aarch64":
        return target
    lines = [set(line.partition(":")[2].split()) for line in cpuinfo.splitlines() if line.startswith("Features")]
    common = set.intersection(*lines) if lines else set()
    return ",".join([f"{target} -mattr=+neon", *(name for word, name in _FEATURES.items() if word in common)])


def _gpu_name(facts: dict[str, str]) -> str:
    """From the driver (``GLES: Qualcomm, Adreno (TM) 640, OpenGL ES 3.2 ...``), else from the kernel."""
    words = facts.get("gles", "").partition("GLES:")[2].split(",")
    if len(words) >= 2:
        return words[1].strip()
    return facts.get("gpu_model", "") or facts.get("gpuinfo", "").partition(" ")[0]


def _mali_cores(text: str) -> int:
    """``Mali-G76 12 cores r0p0 0x72121001``: these cores are OpenCL's compute units."""
    match = re.search(r"\b(\d{1,3}) cores\b", text)
    return int(match[1]) if match else 0


def _parse_mhz(text: str) -> int:
    """The first number, which is in Hz."""
    match = re.match(r"(\d{7,11})\b", text)
    return int(match[1]) // 1_000_000 if match else 0
