"""The CPU's facts, as Linux tells them: clusters of equal cores with their clocks, and caches.

Sources: ``cpufreq``, ``cpu_capacity`` and ``cache`` of /sys/devices/system/cpu, and /proc/cpuinfo.  What a kernel does not
tell stays 0 or empty.
"""

from __future__ import annotations

import re
from pathlib import Path

from tvm_codl.device.profile import Cache, Cluster

SYSTEM = Path("/sys/devices/system/cpu")
CPUINFO = Path("/proc/cpuinfo")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
#: /proc/cpuinfo tells the clock of this moment, which wanders; a profile must stay equal from day to day.
_CLOCK_STEP_MHZ = 50


def clusters(system: Path = SYSTEM, cpuinfo: Path = CPUINFO) -> tuple[Cluster, ...]:
    """Cores of equal capacity, clock and design, the slowest cluster first."""
    told = _cpuinfo(cpuinfo)
    clock = max((_clock(facts) for facts in told.values()), default=0)
    cores: dict[tuple[int, int, str], list[int]] = {}
    for core in _cores(system) or sorted(told):
        facts = told.get(core, {})
        here = system / f"cpu{core}"
        mhz = _number(here / "cpufreq" / "cpuinfo_max_freq") // 1000 or clock
        part = ":".join(facts[name] for name in ("CPU implementer", "CPU part") if name in facts)
        cores.setdefault((_number(here / "cpu_capacity"), mhz, part), []).append(core)
    return tuple(Cluster(tuple(found), mhz, capacity, part) for (capacity, mhz, part), found in sorted(cores.items()))


def caches(system: Path = SYSTEM) -> tuple[Cache, ...]:
    """Every cache once, the first level first."""
    found = set()
    for core in _cores(system):
        for place in (system / f"cpu{core}" / "cache").glob("index[0-9]*"):
            level, size = _number(place / "level"), _size(_text(place / "size"))
            if level and size:
                shared = listed(_text(place / "shared_cpu_list")) or (core,)
                found.add((level, _text(place / "type").lower(), size, shared))
    return tuple(Cache(*facts) for facts in sorted(found, key=lambda f: (f[0], f[1], f[3])))


def listed(text: str) -> tuple[int, ...]:
    """Linux's list of cores: ``0-3,6`` is 0, 1, 2, 3, 6."""
    if not re.fullmatch(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", text):
        return ()
    ends = [part.split("-") for part in text.split(",")]
    return tuple(core for part in ends for core in range(int(part[0]), int(part[-1]) + 1))


def _cores(system: Path) -> list[int]:
    try:
        names = [path.name for path in system.iterdir()]
    except OSError:
        return []
    return sorted(int(name[3:]) for name in names if re.fullmatch(r"cpu\d+", name))


def _cpuinfo(path: Path) -> dict[int, dict[str, str]]:
    """The lines of each core's block."""
    found: dict[int, dict[str, str]] = {}
    facts: dict[str, str] = {}
    for line in _text(path).splitlines():
        name, _, value = (word.strip() for word in line.partition(":"))
        if name == "processor" and value.isdigit():
            facts = found.setdefault(int(value), {})
        elif name:
            facts[name] = value
    return found


def _clock(facts: dict[str, str]) -> int:
    """MHz: the one in the name (``... @ 2.60GHz``), else that of the moment, rounded."""
    name = re.search(r"@ *(\d+(?:\.\d+)?) *GHz", facts.get("model name", ""))
    if name:
        return round(float(name[1]) * 1000)
    moment = re.fullmatch(r"\d+(?:\.\d+)?", facts.get("cpu MHz", ""))
    return round(float(moment[0]) / _CLOCK_STEP_MHZ) * _CLOCK_STEP_MHZ if moment else 0


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(match[1]) * _UNITS[match[2]] if match else 0


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if re.fullmatch(r"\d{1,18}", text) else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
