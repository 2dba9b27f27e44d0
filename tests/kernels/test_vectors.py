"""The vectors of a played GPU's kernels: PoCL calls functions for those of three, once for each multiply-add."""

from __future__ import annotations

import pytest

from tests.kernels.golden import BODIES, source_of, targets


@pytest.mark.parametrize("name", BODIES)
def test_played_gpu_computes_no_vectors_of_three(name: str) -> None:
    source = source_of(BODIES[name], targets()["played GPU"], shipped=False)
    assert "load3(" not in source
    assert "store3(" not in source
