"""The vectors of OpenCL kernels: none of three, whose every load and store is a call of PoCL's and which no image holds."""

from __future__ import annotations

import re

import pytest

from tests.kernels.golden import BODIES, source_of, targets


@pytest.mark.parametrize("place", ["GPU", "GPU with images", "played GPU"])
@pytest.mark.parametrize("name", BODIES)
def test_kernels_have_no_vectors_of_three(name: str, place: str) -> None:
    source = source_of(BODIES[name], targets()[place], shipped=False)
    assert "load3(" not in source
    assert "store3(" not in source


@pytest.mark.parametrize("place", ["GPU", "played GPU"])
def test_integers_are_pooled_in_vectors(place: str) -> None:
    source = source_of(BODIES["max_pool2d of integers"], targets()[place], shipped=False)
    assert re.search(r"uchar16 \w+\[1\]", source)
    assert "uint" not in source, "TVM's type for four bytes is no vector"


def test_a_pixel_that_no_vector_divides_is_pooled_whole() -> None:
    """Each channel by itself took six times as long on PoCL."""
    source = source_of(BODIES["max_pool2d of 42 channels"], targets()["played GPU"], shipped=False)
    assert re.search(r"float \w+\[42\]", source)


def test_sums_that_nothing_reads_are_not_computed() -> None:
    source = source_of(
        BODIES["conv2d 1x1, two blocks in local memory"], targets()["GPU with local memory"], shipped=False
    )
    (sums,) = set(re.findall(r"float4 (\w+)\[\d+\];\n", source)) - {"source", "weights"}
    element = re.compile(rf"\b{sums}\[(\d+)\]")
    lines = [line for line in source.split("\n") if element.search(line) and not line.strip().startswith("float4")]
    computed = {found[1] for line in lines if (found := re.match(rf" *{sums}\[(\d+)\] = ", line))}
    stored = {index for line in lines if f" {sums}[" not in line.partition("=")[0] for index in element.findall(line)}
    assert computed == stored
