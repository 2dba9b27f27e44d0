"""Reasons: why an operator is where it is, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tvm_codl.graph.split import Axis
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.eliminate import Table
from tvm_codl.plan.plan import Placement


def reason(
    chosen: Candidate, options: Sequence[Candidate], axes: Mapping[str, Axis], transfer_ms: float, growth_ms: Table
) -> str:
    """One line in words.  ``options`` starts with cpu and gpu; ``growth_ms[i]`` is what option i would add."""
    whole = {"cpu": options[0].ms, "gpu": options[1].ms}

    def cut(placement: Placement) -> str:
        return f"{placement.at}/{axes[placement.axis].extent} {placement.axis}"

    placement = chosen.placement
    if placement.on == "split":
        better = min(whole, key=whole.__getitem__)
        recomputed = f" ({sum(placement.over)} recomputed)" if any(placement.over) else ""
        words = f"split {cut(placement)}{recomputed}: {_ms(chosen.ms)} ms vs {_ms(whole[better])} on {better} alone"
        return words + (f", {_ms(transfer_ms)} ms of transfers" if transfer_ms > 0 else "")
    here, there = placement.on, "gpu" if placement.on == "cpu" else "cpu"
    here_ms, there_ms = whole[here], whole[there]
    if math.isinf(there_ms):
        return f"{here}: the {there} does not run it"
    best = min(enumerate(options[2:], 2), key=lambda pair: pair[1].ms, default=None)
    if not axes:
        why = "no split rule: opaque"
    elif best is None or math.isinf(best[1].ms):
        why = "no legal cut"
    else:
        index, split = best
        saved = here_ms - split.ms
        words = f"the best split ({cut(split.placement)})"
        why = f"{words} takes {_ms(split.ms)} ms, the whole {_ms(here_ms)}"
        if saved > 0:
            lost = saved + max(0.0, float(growth_ms[index]))
            why = f"not worth splitting: {words} saves {_ms(saved)} ms, its transfers cost {_ms(lost)}"
    if here_ms > there_ms:
        why += f"; {there} takes {_ms(there_ms)} ms, but its neighbours are on the {here}"
    return f"{here} {_ms(here_ms)} ms: {why}"


def placement_words(placement: Placement) -> str:
    """``cpu``, ``gpu``, ``height@12``; ``height@12+2-1`` where the CPU recomputes 2 rows, and the GPU 1."""
    if placement.on != "split":
        return placement.on
    over = f"+{placement.over[0]}-{placement.over[1]}" if any(placement.over) else ""
    return f"{placement.axis}@{placement.at}{over}"


def _ms(ms: float) -> str:
    return f"{ms:.3f}" if ms < 1 else f"{ms:.2f}"
