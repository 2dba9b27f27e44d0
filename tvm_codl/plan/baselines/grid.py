"""Grid: every operator cut in steps of a tenth, as other planners' code cuts them."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from tvm_codl.graph.split import Axis
from tvm_codl.plan.candidates import Candidate
from tvm_codl.plan.plan import Placement
from tvm_codl.plan.problem import Problem

#: The CPU's shares at which these planners cut, in tenths.
STEPS = range(1, 10)
#: The output channels of a convolution, and what corresponds to them in a product; likewise its rows.
CHANNELS = ("channels", "columns")
ROWS = ("height", "rows")
#: Channels are cut in whole vectors of four where the axis has two.
VECTOR = 4


class Grid:
    """Every operator whole, and cut in tenths along its first axis of each dimension (a tuple of names).

    ``options`` start with cpu and gpu.
    """

    def __init__(self, problem: Problem, dimensions: Sequence[Sequence[str]]) -> None:
        self._values: dict[tuple[int, int, int], int] = {}
        wanted: dict[tuple[int, Placement], list[tuple[int, int, int]]] = {}
        for node, operator in enumerate(problem.graph.operators):
            legal = problem.axes.get(operator.id, {})
            for dimension, names in enumerate(dimensions):
                axis = next((legal[name] for name in names if name in legal), None)
                if axis is None:
                    continue
                self._values |= {(node, dimension, 0): 1, (node, dimension, 10): 0}
                for step in STEPS:
                    at = nearest_cut(axis, step / 10)
                    if 0 < at < axis.extent:
                        cut = (node, Placement("split", axis.name, at))
                        wanted.setdefault(cut, []).append((node, dimension, step))
                    else:
                        self._values[node, dimension, step] = 0 if at else 1
        self.options: dict[int, tuple[Candidate, ...]] = {o.id: problem.whole(o.id) for o in problem.graph.operators}
        for (node, _), keys, candidate in zip(wanted, wanted.values(), problem.split(list(wanted)), strict=True):
            id = problem.graph.operators[node].id
            self._values |= dict.fromkeys(keys, len(self.options[id]))
            self.options[id] += (candidate,)

    def value(self, node: int, dimension: int, step: int) -> int | None:
        """The index of the option with ``step`` tenths on the CPU; None for an operator without that dimension."""
        return self._values.get((node, dimension, step))


def nearest_cut(axis: Axis, share: float) -> int:
    """The multiple of the axis's granule (for channels, of :data:`VECTOR` too if it has room for two) nearest to
    ``share`` of its extent; 0 or the extent where that is nearest."""
    unit = lcm(axis.granule, VECTOR) if axis.name in CHANNELS else axis.granule
    if axis.extent < 2 * unit:
        unit = axis.granule
    return min(round(share * axis.extent / unit) * unit, axis.extent)
