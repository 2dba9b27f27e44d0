"""CPU facts from Linux: clusters of equal cores with their clocks, and caches.

Sources: ``cpufreq``, ``cpu_capacity`` and ``cache`` of /sys/devices/system/cpu, and /proc/cpuinfo.  Facts that a kernel does
not report stay 0 or empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tvm_codl.device.profile import Cache, Cluster

SYSTEM = Path("/sys/devices/system/cpu")
CPUINFO = Path("/proc/cpuinfo")
#: The text of each file by its path below ``SYSTEM``, and of ``cpuinfo``.
Files = Mapping[str, str]
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
#: /proc/cpuinfo reports the current clock, which varies; a profile must not.
_CLOCK_STEP_MHZ = 50


def read_files(system: Path = SYSTEM, cpuinfo: Path = CPUINFO) -> Files:
    """This machine's files; a core without any is listed by an empty ``cpu_capacity``."""
    files = {"cpuinfo": read_text(cpuinfo)}
    for core in system.glob("cpu[0-9]*"):
        files[f"{core.name}/cpu_capacity"] = read_text(core / "cpu_capacity")
        for path in (core / "cpufreq" / "cpuinfo_max_freq", *core.glob("cache/index[0-9]*/*")):
            files[path.relative_to(system).as_posix()] = read_text(path)
    return files


def clusters(files: Files | None = None) -> tuple[Cluster, ...]:
    """Cores of equal capacity, clock and design, the slowest cluster first; by default this machine's."""
    files = read_files() if files is None else files
    facts_of = _parse_cpuinfo(files.get("cpuinfo", ""))
    clock = max((_parse_clock(facts) for facts in facts_of.values()), default=0)
    cores: dict[tuple[int, int, str], list[int]] = {}
    for core in _list_cores(files) or sorted(facts_of):
        facts = facts_of.get(core, {})
        mhz = _number(files, f"cpu{core}/cpufreq/cpuinfo_max_freq") // 1000 or clock
        part = ":".join(facts[name] for name in ("CPU implementer", "CPU part") if name in facts)
        cores.setdefault((_number(files, f"cpu{core}/cpu_capacity"), mhz, part), []).append(core)
    return tuple(Cluster(tuple(equal), mhz, capacity, part) for (capacity, mhz, part), equal in sorted(cores.items()))


def caches(files: Files | None = None) -> tuple[Cache, ...]:
    """Every cache once, the first level first; by default this machine's."""
    files = read_files() if files is None else files
    unique = set()
    for path in files:
        match = re.fullmatch(r"(cpu(\d{1,4})/cache/index\d{1,2}/)level", path)
        size = _parse_size(files.get(f"{match[1]}size", "")) if match else 0
        level = _number(files, path)
        if match and level and size:
            shared = parse_core_list(files.get(f"{match[1]}shared_cpu_list", "").strip()) or (int(match[2]),)
            unique.add((level, files.get(f"{match[1]}type", "").strip().lower(), size, shared))
    return tuple(Cache(*facts) for facts in sorted(unique, key=lambda f: (f[0], f[1], f[3])))


def parse_core_list(text: str) -> tuple[int, ...]:
    """Linux's list of cores: ``0-3,6`` is 0, 1, 2, 3, 6."""
    if not re.fullmatch(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", text):
        return ()
    ends = [part.split("-") for part in text.split(",")]
    return tuple(core for part in ends for core in range(int(part[0]), int(part[-1]) + 1))


def _list_cores(files: Files) -> list[int]:
    return sorted({int(match[1]) for path in files if (match := re.match(r"cpu(\d{1,4})/", path))})


def _parse_cpuinfo(text: str) -> dict[int, dict[str, str]]:
    """The lines of each core's block."""
    blocks: dict[int, dict[str, str]] = {}
    facts: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = (word.strip() for word in line.partition(":"))
        if name == "processor" and value.isdigit():
            facts = blocks.setdefault(int(value), {})
        elif name:
            facts[name] = value
    return blocks


def _parse_clock(facts: dict[str, str]) -> int:
    """MHz: from the name (``... @ 2.60GHz``), else the current clock, rounded."""
    name = re.search(r"@ *(\d+(?:\.\d+)?) *GHz", facts.get("model name", ""))
    if name:
        return round(float(name[1]) * 1000)
    current = re.fullmatch(r"\d+(?:\.\d+)?", facts.get("cpu MHz", ""))
    return round(float(current[0]) / _CLOCK_STEP_MHZ) * _CLOCK_STEP_MHZ if current else 0


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"(\d{1,18})([KMG]?)", text.strip())
    return int(match[1]) * _UNITS[match[2]] if match else 0


def _number(files: Files, path: str) -> int:
    text = files.get(path, "").strip()
    return int(text) if re.fullmatch(r"\d{1,18}", text) else 0


def read_text(path: Path) -> str:
    """Empty for a file that cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
