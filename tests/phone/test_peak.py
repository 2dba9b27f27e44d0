"""A GPU's measured peak: finite, positive, and no more than any device has."""

from __future__ import annotations

import json
import math

import msgspec
from click.testing import CliRunner

from tvm_codl.cli.device import command
from tvm_codl.device.connect import connect
from tvm_codl.device.peak import Peak, measure_peak

#: 10^15 operations and 10^14 bytes a second, and a tenth of a second for a launch: no device is beyond.
BOUNDS = {"gflops": 1e6, "gbps": 1e5, "us": 1e5}


def sane(peak: Peak, float16: bool) -> bool:
    measured = msgspec.structs.asdict(peak)
    half = measured.pop("float16_gflops")
    right = all(math.isfinite(v) and 0 < v < BOUNDS[name.rpartition("_")[2]] for name, v in measured.items())
    return right and (0 < half < BOUNDS["gflops"]) == float16


def test_the_reference_phones_peak() -> None:
    with connect() as phone:
        peak = measure_peak(phone)
        assert peak is not None and sane(peak, phone.profile.float16), peak
        # A core multiplies and adds some numbers a cycle: what was left out by a compiler would be beyond that.
        assert peak.float32_gflops < 200 * 10 * max(phone.profile.compute_units, 1)
        assert phone.opened == 1 and phone.alive()


def test_device_info_of_the_reference_phone_shows_it() -> None:
    done = CliRunner().invoke(command, ["info", "--local", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["gpu_name"] and "adb" not in done.output
    assert sane(msgspec.convert(told["peak"], Peak), told.get("float16", False))


def test_a_phone_of_an_older_runtime_has_none() -> None:
    class Remote:
        def get_function(self, name: str) -> None:
            raise AttributeError(name)

    class Older:
        remote = Remote()

    assert measure_peak(Older()) is None
