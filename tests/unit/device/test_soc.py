"""CoDL's files of SoC facts, and profiles that take them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.device.facts_file import parse_facts
from tvm_codl.device.profile import Cache, Cluster, DeviceProfile
from tvm_codl.device.soc import Soc, read_soc
from tvm_codl.errors import UserError

#: As CoDL's file of the Snapdragon 855 has it.
SDM855 = "global_mem_cache_size: 131072\ncompute_units: 2\nmax_work_group_size: 1024\nkernel_wave_size: 64\n"
PHONE = DeviceProfile("phone", "aarch64", "A78", (0, 1), "llvm", "Mali", "opencl", compute_units=9, max_work_group=384)
numbers = st.integers(1, 1 << 40)


@given(st.builds(Soc, numbers, numbers, numbers, numbers))
def test_facts_come_back(soc: Soc) -> None:
    assert parse_facts(soc.to_yaml(), Soc, "text", "") == soc


def test_codls_own_file_is_read_and_written_the_same(tmp_path: Path) -> None:
    (tmp_path / "sdm855.yaml").write_text(SDM855)
    assert read_soc(tmp_path / "sdm855.yaml") == Soc(131072, 2, 1024, 64)
    profile = PHONE.with_soc(read_soc(tmp_path / "sdm855.yaml"))
    assert (profile.compute_units, profile.max_work_group, profile.name) == (2, 1024, "phone")
    assert profile.soc.to_yaml() == SDM855


def test_a_file_may_tell_some_facts_and_the_device_the_others(tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text("# from the data sheet\n\nkernel_wave_size : 16  # warp\n")
    assert PHONE.with_soc(read_soc(tmp_path / "some.yaml")).soc == Soc(0, 9, 384, 16)
    assert PHONE.soc.to_yaml() == "compute_units: 9\nmax_work_group_size: 384\n"


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        *(
            ("compute_units: two", "compute_units"),
            ("compute_units 2", "object"),
            ("compute_units: -2", "compute_units"),
        ),
        *(
            ("compute_units: 0", "compute_units"),
            ("compute_units: 2\ncompute_units: 2", "line 2"),
            ("\ncores: 2", "cores"),
        ),
        *(
            ("compute_units: 2.5", "compute_units"),
            ("- 2", "object"),
            ("compute_units: 9999999999999", "compute_units"),
        ),
        *(("compute_units:", "compute_units"), ("compute_units: ٣", "compute_units"), ("a: [", "line 1")),
        *(
            ("[" * 100_000, "Recursion"),
            ("compute_units: 2001-99-99", "month"),
            ("compute_units: true", "compute_units"),
        ),
    ],
)
def test_a_bad_line_or_field_is_named(tmp_path: Path, text: str, evidence: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(UserError, match=r"bad\.yaml") as error:
        read_soc(tmp_path / "bad.yaml")
    assert evidence in error.value.evidence and "compute_units: 8" in error.value.next


@pytest.mark.parametrize("content", [None, b"", b"# nothing\n", b"\xff\xfe"])
def test_a_file_that_tells_nothing_is_a_kind_error(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "soc.yaml").write_bytes(content)
    with pytest.raises(UserError, match=r"soc\.yaml"):
        read_soc(tmp_path / "soc.yaml")


@given(st.text(max_size=80))
def test_any_text_is_facts_or_a_kind_error(text: str) -> None:
    try:
        assert isinstance(parse_facts(text, Soc, "text", ""), Soc)
    except UserError:
        pass


def test_profiles_of_older_and_newer_servers_are_read() -> None:
    old = '{"name":"p","arch":"a","cpu_name":"c","cpu_cores":[0],"cpu_target":"llvm","gpu_name":"g","gpu_target":"opencl"}'
    profile = DeviceProfile.from_json(old)
    assert profile.clusters == () and profile.memory_kind == "" and profile.soc == Soc()
    assert profile.to_json() == old, "what is not known is left out"
    assert DeviceProfile.from_json(old[:-1] + ',"teeth":32}') == profile


def test_a_full_profile_comes_back() -> None:
    profile = DeviceProfile(
        *("phone", "aarch64", "A78", (0, 1), "llvm", "Mali", "opencl"),
        clusters=(Cluster((0, 1), 1785, 380, "0x41:0xd05"),),
        caches=(Cache(1, "data", 32768, (0,)),),
        memory_kind="svm",
        images=True,
        image2d=(16384, 8192),
    )
    assert DeviceProfile.from_json(profile.to_json()) == profile
