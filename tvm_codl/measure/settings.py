"""How a candidate is timed, and how long anything may take."""

from __future__ import annotations

import msgspec

from tvm_codl.runtime.comodule import LARGE_NETWORK


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Names that end in ``_s`` are seconds.

    Sampling: after one run that is not counted, ``fewest`` samples, and as many again until the median's standard error
    is at most ``spread`` of it, there are ``most`` samples, or ``budget_s`` has gone by.  A sample is one run as inside
    a network that goes through ``network_bytes`` between two runs of one operator: of a small one a phone's caches keep
    the weights, of a large one they do not.

    Drift: after every ``baseline_every`` candidates a known operator is timed.  Where it runs ``drift`` slower than it
    did, the phone may cool down in growing pauses, ``cool_s`` in all for a session.

    Limits: a candidate may take ``limit_factor`` times what is predicted for its runs, and ``floor_s`` at least;
    ``first_s`` on top for its first run, in which a driver may still compile.  Loading a library may take ``load_s``,
    and ``load_each_s`` more for each candidate in it.  A phone that went away is waited for ``patience_s``.  A
    candidate with which the phone (or this process) died ``tries`` times is given up.
    """

    fewest: int = 5
    most: int = 30
    spread: float = 0.02
    budget_s: float = 0.3
    network_bytes: int = LARGE_NETWORK
    baseline_every: int = 8
    drift: float = 0.25
    cool_s: float = 60.0
    floor_s: float = 2.0
    limit_factor: float = 20.0
    first_s: float = 60.0
    load_s: float = 60.0
    load_each_s: float = 10.0
    patience_s: float = 120.0
    tries: int = 2
