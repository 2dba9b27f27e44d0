"""Reasons: why an operator is where it is, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tvm_codl.graph.split import Axis
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.eliminate import Table
from tvm_codl.plan.plan import Placement


def reason(
    chosen: Candidate,
    options: Sequence[Candidate],
    axes: Mapping[str, Axis],
    share_ms: float,
    growth_ms: Table,
) -> str:
    """One line in words.  ``options`` starts with cpu and gpu; ``growth_ms[i]`` is what option i would add."""
    cpu, gpu = options[0].ms, options[1].ms
    better = min(("cpu", cpu), ("gpu", gpu), key=lambda one: one[1])
    placement = chosen.placement
    if placement.on == "split":
        twice = f" ({sum(placement.over)} made twice)" if any(placement.over) else ""
        words = (
            f"split {placement.at}/{axes[placement.axis].extent} {placement.axis}{twice}: "
            f"{_ms(chosen.ms)} ms vs {_ms(better[1])} on {better[0]} alone"
        )
        return words + (f", {_ms(share_ms)} ms to share" if share_ms > 0 else "")
    here, there = (("cpu", cpu), ("gpu", gpu)) if placement.on == "cpu" else (("gpu", gpu), ("cpu", cpu))
    if math.isinf(there[1]):
        return f"{here[0]}: the {there[0]} does not run it"
    splits = [option for option in options[2:] if math.isfinite(option.ms)]
    if not axes:
        why = "no split rule: opaque"
    elif not splits:
        why = "no legal cut"
    else:
        fastest = min(splits, key=lambda option: option.ms)
        words = f"{fastest.placement.at}/{axes[fastest.placement.axis].extent} {fastest.placement.axis}"
        if fastest.ms >= here[1]:
            why = f"the best split ({words}) takes {_ms(fastest.ms)} ms, the whole {_ms(here[1])}"
        else:
            index = list(options).index(fastest)
            lost = here[1] - fastest.ms + max(0.0, float(growth_ms[index]))
            why = f"too small to share: the best split ({words}) saves {_ms(here[1] - fastest.ms)} ms, "
            why += f"its sharing costs {_ms(lost)}"
    if here[1] > there[1]:
        why += f"; {there[0]} takes {_ms(there[1])} ms, but its neighbours are on the {here[0]}"
    return f"{here[0]} {_ms(here[1])} ms: {why}"


def placement_words(placement: Placement) -> str:
    """``cpu``, ``gpu``, ``height@12``; ``height@12+2-1`` where the CPU makes 2 rows more, and the GPU 1."""
    if placement.on != "split":
        return placement.on
    over = f"+{placement.over[0]}-{placement.over[1]}" if any(placement.over) else ""
    return f"{placement.axis}@{placement.at}{over}"


def _ms(ms: float) -> str:
    return f"{ms:.3f}" if ms < 1 else f"{ms:.2f}"
