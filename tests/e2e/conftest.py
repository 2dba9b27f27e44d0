"""Commands measure without a pause."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_pause(no_pause: None) -> None:
    pass
