"""Energy: what a run of a plan draws, by a table of the phone's power: a model, not a measurement.

A phone draws so many watts while both processors are idle, while one of them works, and while both do.  The energy of a
run is the sum over its time of the state's watts; milliseconds times watts are millijoules.  :meth:`Energy.measure` is that
of a simulated run; :meth:`Energy.weigh` turns the search's tables into millijoules for the same search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np

from tvm_codl.plan.costs import Costs
from tvm_codl.plan.eliminate import Table
from tvm_codl.plan.simulate import Times


class Watts(Protocol):
    """Power of the whole phone in watts: idle, with the CPU busy, with the GPU busy, with both."""

    @property
    def idle_w(self) -> float: ...
    @property
    def cpu_w(self) -> float: ...
    @property
    def gpu_w(self) -> float: ...
    @property
    def both_w(self) -> float: ...


@dataclass(frozen=True)
class Energy:
    """Millijoules by a power table, for runs and for the search's tables."""

    watts: Watts

    def measure(self, times: Times) -> float:
        """Millijoules of a simulated run: each moment's state's watts, summed over the whole time.

        A processor is busy from the start of a part to its end; while it waits, is woken or enqueues, it counts as idle.
        """
        starts, ends = np.array(times.starts), np.array(times.ends)
        marks = np.unique([0.0, times.total_ms, *starts[ends > 0], *ends[ends > 0]])
        # In each interval between two marks, for the CPU and the GPU: whether one of its parts works then.
        cpu, gpu = (
            ((starts[:, on, None] <= marks[:-1]) & (marks[:-1] < ends[:, on, None])).any(axis=0).astype(int)
            for on in (0, 1)
        )
        watts = np.array([[self.watts.idle_w, self.watts.gpu_w], [self.watts.cpu_w, self.watts.both_w]])
        return float(sum((np.diff(marks) * watts[cpu, gpu]).tolist()))

    def weigh(self, costs: Costs) -> Costs:
        """The tables in millijoules.

        An operator draws the power of both processors while both work on it, then that of the one that works on.  Waits
        are idle; both processors join pieces; the CPU copies, and passes the network's inputs and outputs.
        """
        watts, sharing = self.watts, costs.sharing
        work = tuple(self._joint(*ends) for ends in costs.ends)
        host = tuple(watts.cpu_w * table for table in costs.host)
        edges = {}
        for pair, table in costs.edges.items():
            bytes = costs.crossings[pair]
            waits = table - sharing.bytes_ms(*bytes.tables)
            copies = sharing.move_ms(bytes.to_cpu, bytes.to_gpu)
            joining = bytes.joined * sharing.join_ms_per_mb / 1e6
            far = self._joint(
                bytes.to_cpu * sharing.far_cpu_ms_per_mb / 1e6, bytes.to_gpu * sharing.far_gpu_ms_per_mb / 1e6
            )
            edges[pair] = watts.idle_w * waits + watts.cpu_w * copies + watts.both_w * joining + far
        nodes = tuple(w + end for w, end in zip(work, host, strict=True))
        return msgspec.structs.replace(costs, nodes=nodes, work=work, host=host, edges=edges, _steps={})

    def reasons(self, weighed: Costs, choice: Sequence[int]) -> list[str]:
        """What each operator draws where it is, and elsewhere."""
        reasons = []
        for work, chosen, here in zip(weighed.work, weighed.chosen(choice), choice, strict=True):
            drawn = [f"{work[here]:.3f} mJ {chosen.placement.on}"]
            drawn += [
                f"{work[i]:.3f} on {on} alone"
                for i, on in enumerate(("cpu", "gpu"))
                if i != here and np.isfinite(work[i])
            ]
            if here < 2 and np.isfinite(work[2:]).any():
                drawn.append(f"{work[2:].min():.3f} in the best split")
            reasons.append("fewest millijoules of the network: " + ", ".join(drawn))
        return reasons

    def _joint(self, cpu_ms: Table, gpu_ms: Table) -> Table:
        """Both work from the same moment on, for these times; infinite where either never ends."""
        runs = np.isfinite(cpu_ms) & np.isfinite(gpu_ms)
        cpu, gpu = np.where(runs, cpu_ms, 0.0), np.where(runs, gpu_ms, 0.0)
        both = np.minimum(cpu, gpu)
        drawn = self.watts.both_w * both + self.watts.cpu_w * (cpu - both) + self.watts.gpu_w * (gpu - both)
        result: Table = np.where(runs, drawn, np.inf)
        return result
