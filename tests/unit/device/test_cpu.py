"""The CPU's facts, from folders laid out as Linux's, of a phone and of a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.device.cpu import caches, clusters, parse_core_list, read_files
from tvm_codl.device.profile import Cache, Cluster


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.fixture()
def phone(tmp_path: Path) -> Path:
    """Two big cores and two small ones, as a Linux kernel for arm64 shows them."""
    for core in range(4):
        here = tmp_path / "cpu" / f"cpu{core}"
        big = core >= 2
        write(here / "cpu_capacity", 1024 if big else 380)
        write(here / "cpufreq" / "cpuinfo_max_freq", 2841600 if big else 1785600)
        for index, (level, kind, size, shared) in enumerate(
            [
                (1, "Data", "64K" if big else "32K", core),
                (1, "Instruction", "64K" if big else "32K", core),
                (2, "Unified", "512K" if big else "128K", core),
                (3, "Unified", "2M", "0-3"),
            ]
        ):
            for name, value in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
                write(here / "cache" / f"index{index}" / name, value)
    (tmp_path / "cpu" / "cpuidle").mkdir()
    blocks = [
        f"processor\t: {core}\nBogoMIPS\t: 38.40\nCPU implementer\t: 0x41\nCPU part\t: {'0xd0b' if core >= 2 else '0xd05'}\n"
        for core in range(4)
    ]
    write(tmp_path / "cpuinfo", "\n".join(blocks))
    return tmp_path


def test_a_phones_clusters_come_slowest_first(phone: Path) -> None:
    assert clusters(read_files(phone / "cpu", phone / "cpuinfo")) == (
        Cluster((0, 1), 1785, 380, "0x41:0xd05"),
        Cluster((2, 3), 2841, 1024, "0x41:0xd0b"),
    )


def test_a_phones_caches_come_once_each(phone: Path) -> None:
    found = caches(read_files(phone / "cpu"))
    assert found[0] == Cache(1, "data", 32 << 10, (0,)) and found[-1] == Cache(3, "unified", 2 << 20, (0, 1, 2, 3))
    assert [cache.level for cache in found] == [1] * 8 + [2] * 4 + [3]


@pytest.mark.parametrize(
    ("lines", "mhz"),
    [
        ("model name\t: Intel(R) Xeon(R) CPU @ 2.60GHz\ncpu MHz\t: 1234.5", 2600),
        ("model name\t: AMD EPYC\ncpu MHz\t: 2596.150", 2600),
        ("model name\t: AMD EPYC", 0),
        ("cpu MHz\t: fast", 0),
    ],
)
def test_without_cpufreq_the_clock_is_the_names_or_the_moments(tmp_path: Path, lines: str, mhz: int) -> None:
    write(tmp_path / "cpuinfo", f"processor\t: 0\n{lines}\n\nprocessor\t: 1\n{lines}")
    assert clusters(read_files(tmp_path / "none", tmp_path / "cpuinfo")) == (Cluster((0, 1), mhz),)


def test_what_is_not_told_or_makes_no_sense_stays_empty(tmp_path: Path) -> None:
    nothing = read_files(tmp_path / "none", tmp_path / "cpuinfo")
    assert clusters(nothing) == () and caches(nothing) == ()
    write(tmp_path / "cpu" / "cpu0" / "cpufreq" / "cpuinfo_max_freq", "<unknown>")
    write(tmp_path / "cpu" / "cpu0" / "cache" / "index0" / "size", "big")
    files = read_files(tmp_path / "cpu", tmp_path / "none")
    assert clusters(files) == (Cluster((0,)),) and caches(files) == ()


def test_this_machine_has_cores() -> None:
    assert all(cluster.cores for cluster in clusters()) and len(clusters()) >= 1
    assert clusters() == clusters() and caches() == caches()


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), min_size=1, max_size=4))
def test_lists_of_cores(parts: list[tuple[int, int]]) -> None:
    text = ",".join(f"{a}-{a + more}" if more else f"{a}" for a, more in parts)
    assert parse_core_list(text) == tuple(core for a, more in parts for core in range(a, a + more + 1))


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "1-2-3", "99999-1"])
def test_what_is_no_list_of_cores(text: str) -> None:
    assert parse_core_list(text) == ()
