from __future__ import annotations

import pytest

from tvm_codl.errors import UserError
from tvm_codl.plan.baselines.ideal import ideal_ms


def test_ideal_time() -> None:
    assert ideal_ms([2.0, 1.0], [2.0, float("inf")]) == pytest.approx(2.0)
    with pytest.raises(UserError):
        ideal_ms([1.0], [])
