"""The profile that the shell of a phone tells."""

from __future__ import annotations

import msgspec
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_codl.device.adb.connection import AdbEntry
from tvm_codl.device.adb.facts import facts_to_yaml, known_facts, merge_profiles, read_shell_profile
from tvm_codl.device.facts_file import parse_facts
from tvm_codl.device.profile import Cache, Cluster, DeviceProfile
from tvm_codl.device.soc import Soc

FEATURES = "Features\t: fp asimd evtstrm aes crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
#: A phone with four small, three large and one fast core.
CLUSTERS = (
    (range(4), 1785600, 261, "0xd05"),
    (range(4, 7), 2419200, 871, "0xd0d"),
    (range(7, 8), 2841600, 1024, "0xd0d"),
)


def cpu_text() -> str:
    info = files = ""
    for cores, clock, capacity, part in CLUSTERS:
        for core in cores:
            info += f"processor\t: {core}\n{FEATURES}\nCPU implementer\t: 0x41\nCPU part\t: {part}\n\n"
            files += f"=== cpu{core}/cpu_capacity\n{capacity}\n=== cpu{core}/cpufreq/cpuinfo_max_freq\n{clock}\n\n"
    for name, text in (("level", "1"), ("size", "32K"), ("type", "Data"), ("shared_cpu_list", "0")):
        files += f"=== cpu0/cache/index0/{name}\n{text}\n\n"
    return f"=== cpuinfo\n{info}Hardware\t: Example Technologies, Inc SM8150\n\n{files}"


REST = """=== ro.product.manufacturer
Google
=== ro.product.model
Pixel 4
=== ro.soc.manufacturer

=== ro.soc.model

=== ro.board.platform
msmnile
=== ro.product.cpu.abi
arm64-v8a
=== machine
aarch64
=== gles
 GLES: Qualcomm, Adreno (TM) 640, OpenGL ES 3.2 V@415.0 (GIT@663be55)
=== gpu_model
Adreno640v2
=== max_gpuclk
585000000
=== gpuinfo

=== devfreq
=== memory
MemTotal:        5661344 kB
"""


class Told:
    """A phone that answers with these texts, the CPU's first."""

    serial = "serial"
    entry = AdbEntry("serial", "device", "Model")

    def __init__(self, cpu: str, rest: str) -> None:
        self.answers = [cpu, rest]

    def read(self, script: str, *words: str, timeout_s: float = 0) -> str:
        return self.answers.pop(0)


def profile_of(cpu: str, rest: str) -> DeviceProfile:
    return read_shell_profile(Told(cpu, rest))  # type: ignore[arg-type]


def test_a_phone_with_three_clusters() -> None:
    profile = profile_of(cpu_text(), REST)
    assert profile.clusters == tuple(
        Cluster(tuple(cores), clock // 1000, capacity, f"0x41:{part}") for cores, clock, capacity, part in CLUSTERS
    )
    assert profile.caches == (Cache(1, "data", 32 << 10, (0,)),)
    assert (profile.name, profile.cpu_name, profile.arch) == ("Google Pixel 4", "msmnile", "aarch64")
    assert (profile.gpu_name, profile.gpu_mhz, profile.gpu_target) == ("Adreno (TM) 640", 585, "opencl -device=adreno")
    assert profile.cpu_target == "llvm -mtriple=aarch64-linux-android -mattr=+neon,+dotprod,+fullfp16"
    assert profile.cpu_cores == tuple(range(8))


def test_a_feature_that_one_core_lacks_is_not_used() -> None:
    text = cpu_text().replace(FEATURES, FEATURES.removesuffix(" asimddp"), 1)
    assert profile_of(text, REST).cpu_target.endswith("-mattr=+neon,+fullfp16")


def test_mali_tells_its_cores() -> None:
    rest = REST.replace("=== gpuinfo\n", "=== gpuinfo\nMali-G76 12 cores r0p0 0x72121001\n").replace("Adreno640v2", "")
    rest = rest.replace(
        "GLES: Qualcomm, Adreno (TM) 640, OpenGL ES 3.2 V@415.0 (GIT@663be55)", "GLES: ARM, Mali-G76, OpenGL ES 3.2"
    )
    rest = rest.replace("585000000", "").replace("=== devfreq\n", "=== devfreq\n720000000\n")
    profile = profile_of(cpu_text(), rest)
    assert (profile.gpu_name, profile.compute_units, profile.gpu_mhz) == ("Mali-G76", 12, 720)
    assert profile.gpu_target == "opencl -device=mali"


def test_files_that_were_not_asked_for_are_ignored() -> None:
    bad = "".join(
        f"=== {name}\nx\n" for name in ("../../escaped", "/tmp/x", "cpu1x/cache/index0/level", "xcpu1/cpu_capacity")
    )
    assert (profile_of(bad, "").clusters, profile_of(bad, "").caches) == ((), ())


def test_a_phone_that_says_nothing_is_named_by_adb() -> None:
    profile = profile_of("", "")
    assert (profile.name, profile.arch, profile.cpu_target) == ("Model", "", "llvm")
    assert yaml.safe_load(facts_to_yaml(known_facts(profile))) == {
        "name": "Model",
        "cpu_target": "llvm",
        "gpu_target": "opencl -device=mali",
    }


@settings(max_examples=examples(50))
@given(st.lists(st.sampled_from(cpu_text().splitlines()) | st.text(max_size=40)), st.text(max_size=400))
def test_whatever_it_says_is_a_profile_or_nothing(lines: list[str], rest: str) -> None:
    text = facts_to_yaml(known_facts(profile_of("\n".join(lines), REST + rest)))
    assert isinstance(yaml.safe_load(text), dict)


def test_the_server_knows_better_and_the_shell_fills_in() -> None:
    shell = profile_of(cpu_text(), REST)
    server = DeviceProfile(
        name="phone", arch="aarch64", cpu_name="", cpu_cores=(4, 5), cpu_target="llvm", gpu_name="QUALCOMM Adreno(TM)",
        gpu_target="opencl", compute_units=2, max_work_group=1024, kernel_wave_size=64, global_mem_cache_size=131072,
        memory_kind="unified", build_id="abc",
    )  # fmt: skip
    both = merge_profiles(shell, server)
    assert (both.name, both.gpu_name, both.cpu_cores, both.build_id) == ("phone", "QUALCOMM Adreno(TM)", (4, 5), "abc")
    assert (both.cpu_name, both.clusters, both.gpu_mhz) == ("msmnile", shell.clusters, 585)
    told = yaml.safe_load(facts_to_yaml(known_facts(both)))
    assert told["memory_kind"] == "unified"
    discrete = msgspec.structs.replace(both, memory_kind="discrete", unified_memory=False)
    for profile in (both, discrete):
        assert msgspec.convert(yaml.safe_load(facts_to_yaml(known_facts(profile))), DeviceProfile) == profile
    assert parse_facts(both.soc.to_yaml(), Soc, "text", "") == both.soc
