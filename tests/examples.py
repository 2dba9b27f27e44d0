"""How many examples property tests draw: the same few in ``make test``, new ones and more in ``make test-slow``."""

from __future__ import annotations

import os

from hypothesis import settings

#: Names the profile, "fast" or "slow".
PROFILE = "TVM_CODL_EXAMPLES"
#: Of the profile "fast".
USUAL = 100

settings.register_profile("fast", max_examples=USUAL, derandomize=True, database=None, deadline=None)
settings.register_profile("slow", max_examples=5 * USUAL, database=None, deadline=None, print_blob=True)
settings.load_profile(os.environ.get(PROFILE, "fast"))


def examples(usual: int) -> int:
    """``usual`` in the profile "fast", as many times more in others as these draw more."""
    return max(1, usual * settings.default.max_examples // USUAL)
