from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.device.power import Power, read_power
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import UserError

TABLE = "# measured at the battery\nidle_w: 0.4\ncpu_w: 3.5  # four big cores\ngpu_w: 1.9\nboth_w: 4.8\n"


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        TABLE.replace("0.4", "4e-1"),
        '{"idle_w": 0.4, "cpu_w": 3.5, "gpu_w": 1.9, "both_w": 4.8}',
        "\ufeff" + TABLE,
    ],
)
def test_lines_and_json_say_the_same(tmp_path: Path, text: str) -> None:
    path = tmp_path / "power.yaml"
    path.write_text(text, encoding="utf-8")
    assert read_power(path) == Power(idle_w=0.4, cpu_w=3.5, gpu_w=1.9, both_w=4.8)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "idle_w"),
        (TABLE.replace("both_w", "all_w"), "all_w"),
        (TABLE.replace("gpu_w: 1.9\n", ""), "gpu_w"),
        (TABLE + "cpu_w: 3\n", "line 6"),
        (TABLE.replace("1.9", "much"), "gpu_w"),
        (TABLE.replace("1.9", "-1"), "gpu_w must be finite"),
        (TABLE.replace("4.8", "inf"), "both_w must be finite"),
        (TABLE.replace("4.8", "3"), "cpu_w (3.5) must not be above both_w (3.0)"),
        (TABLE.replace("0.4", "2"), "idle_w (2.0) must not be above gpu_w (1.9)"),
        ("just words\n", "object"),
        ('{"idle_w": 1, "cpu_w": 1, "gpu_w": 1}', "both_w"),
        ("{broken", "line 1"),
    ],
)
def test_another_file_is_refused_with_the_reason_and_what_to_write(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "power.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_power(path)
    assert words in str(error.value) and "power.yaml" in str(error.value) and "four lines" in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.yaml cannot be read"):
        read_power(tmp_path / "none.yaml")


watts = st.floats(0, 50)


@given(st.tuples(watts, watts, watts, watts))
def test_it_travels_with_the_profile(values: tuple[float, float, float, float]) -> None:
    idle, cpu, gpu, both = sorted(values)
    power = Power(idle, cpu, gpu, both)
    profile = DeviceProfile("phone", "aarch64", "c", (0,), "llvm", "g", "opencl", power=power)
    assert DeviceProfile.from_json(profile.to_json()) == profile
    assert "power" not in msgspec.json.decode(msgspec.structs.replace(profile, power=None).to_json())
