"""What adb lists, and what a phone says, read as what it is: outside data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.device.adb.connection import AdbEntry, parse_entry, sanitize
from tvm_codl.device.adb.forward import Mapping
from tvm_codl.device.adb.push import check_folder
from tvm_codl.errors import UsageError


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "R58M123ABC             device usb:1-4 product:beyond1 model:SM_G973F device:beyond1 transport_id:3",
            AdbEntry("R58M123ABC", "device", "SM G973F"),
        ),
        ("emulator-5554\tdevice", AdbEntry("emulator-5554", "device")),
        ("192.168.1.7:5555       offline transport_id:2", AdbEntry("192.168.1.7:5555", "offline")),
        ("adb-R58M-x._adb-tls-connect._tcp device model:Pixel_4", AdbEntry("adb-R58M-x._adb-tls-connect._tcp", "device", "Pixel 4")),
        ("0123456789ABCDEF       unauthorized usb:1-4 transport_id:1", AdbEntry("0123456789ABCDEF", "unauthorized")),
        (
            "0123456789ABCDEF       no permissions (user in plugdev group; are your udev rules wrong?); see [http://x] usb:1-4",
            AdbEntry("0123456789ABCDEF", "no permissions (user in plugdev group; are your udev rules wrong?); see [http://x]"[:80]),
        ),
        ("", None),
        ("* daemon started successfully", None),
        ("serial", None),
        ("serial brandished", None),
    ],
)  # fmt: skip
def test_a_line_of_devices(line: str, expected: AdbEntry | None) -> None:
    assert parse_entry(line) == expected


@given(st.text())
def test_any_line_is_a_phone_or_none(line: str) -> None:
    one = parse_entry(line)
    assert one is None or (one.serial.isascii() and one.serial.isprintable() and sanitize(one.model) == one.model)


@given(st.text(), st.integers(0, 50))
def test_plain_is_one_printable_line(text: str, length: int) -> None:
    cut = sanitize(text, length)
    assert cut.isprintable() and len(cut) <= length


@pytest.mark.parametrize("good", ["/data/local/tmp/tvm_codl", "/tmp", "/a.b/c-d+e_1"])
def test_a_folder(good: str) -> None:
    assert check_folder(good) == good


@pytest.mark.parametrize("bad", ["", "/", "tmp", "/tmp/", "/tmp/..", "/a b", "/$(id)", "/a;b", "/a\nb", "//a", "/ä"])
def test_no_folder(bad: str) -> None:
    with pytest.raises(UsageError):
        check_folder(bad)


def test_a_mapping_says_who_reaches_whom() -> None:
    assert str(Mapping("reverse", 9190, 9190, "tracker")) == "tracker: phone 127.0.0.1:9190 -> here 127.0.0.1:9190"
    assert str(Mapping("forward", 9090, 9091, "server")) == "server: here 127.0.0.1:9091 -> phone 127.0.0.1:9090"
