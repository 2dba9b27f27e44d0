"""The vectors of OpenCL kernels: none of three, whose every load and store is a call of PoCL's and which no image holds."""

from __future__ import annotations

import pytest

from tests.kernels.golden import BODIES, source_of, targets


@pytest.mark.parametrize("place", ["GPU", "GPU with images", "played GPU"])
@pytest.mark.parametrize("name", BODIES)
def test_kernels_have_no_vectors_of_three(name: str, place: str) -> None:
    source = source_of(BODIES[name], targets()[place], shipped=False)
    assert "load3(" not in source
    assert "store3(" not in source
