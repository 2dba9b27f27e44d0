"""What TVM writes in OpenCL C for each lane of a vector is written once, and products that are known are not computed."""

from __future__ import annotations

import re

import pytest

from tests.kernels.golden import BODIES, source_of, targets
from tvm_codl.kernels.schedules.opencl_source import short_broadcasts


def lanes(count: int, *values: str) -> str:
    return f"((float{count})({', '.join(values)}))"


@pytest.mark.parametrize("count", [2, 4, 8, 16])
@pytest.mark.parametrize("value", ["x[(k + 1)]", "min(a, b)", "-1.5e+00f"])
def test_one_value_in_all_lanes_is_written_once(count: int, value: str) -> None:
    assert short_broadcasts(f"y = {lanes(count, *[value] * count)};") == f"y = {lanes(count, value)};"


def test_other_vectors_stay() -> None:
    for values in ("abcd", "aaab", "abab", "aabb"):
        text = f"y = {lanes(4, *values)}; z = ((float4)(vload4(0, x + 1)));"
        assert short_broadcasts(text) == text


def test_a_broadcast_within_another_and_two_in_a_line() -> None:
    inner = lanes(2, "a", "a")
    text = lanes(4, *[f"f({inner})"] * 4) + lanes(4, *"bbbb")
    assert short_broadcasts(text) == lanes(4, f"f({lanes(2, 'a')})") + lanes(4, "b")


def test_winograds_transforms_neither_multiply_by_zeros_and_ones_nor_add_to_zeros() -> None:
    source = source_of(BODIES["Winograd"], targets()["played GPU"], shipped=False)
    assert "codl_combination" not in source
    assert re.search(r"\* \(\(float16\)\(-?1\.5", source)
    assert not re.search(r"\* \(\(float16\)\(-?[01]\.0+e\+00f", source)
    assert not re.search(r"\b(read|written)\w*\[\d+\] = \(\(float16\)\(0", source)
