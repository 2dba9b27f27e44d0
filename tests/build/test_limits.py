"""What a device does not allow is found before it is sent."""

from __future__ import annotations

import pytest

from tvm_codl.build.launches import Launch
from tvm_codl.build.limits import Limits, OverLimits, check

DEVICE = Limits(work_group=256, local_memory=4096, queue=8)


@pytest.mark.parametrize(
    ("launches", "words"),
    [
        ([], ""),
        ([Launch(256, 4096)] * 8, ""),
        ([Launch(1, 0), Launch(257, 0)], "257 work-items; the device allows 256"),
        ([Launch(64, 4097)], "4097 bytes of local memory; the device has 4096"),
        ([Launch(1, 0)] * 9, "9 kernels in the queue at once; at most 8"),
    ],
)
def test_each_limit(launches: list[Launch], words: str) -> None:
    found = DEVICE.broken_by(launches)
    assert (words in found) if words else found == ""


def test_a_device_that_does_not_say_limits_nothing() -> None:
    assert Limits().broken_by([Launch(10**6, 10**9)]) == ""


def test_all_offenders_are_named_at_once() -> None:
    with pytest.raises(OverLimits) as error:
        check([[Launch(1, 0)], [Launch(512, 0)], [], [Launch(1, 9999)]], DEVICE)
    assert set(error.value.offenders) == {1, 3}
    check([[Launch(1, 0)], []], DEVICE)
