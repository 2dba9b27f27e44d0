"""Energy: what a run of a plan draws, by a table of the phone's power.  A model, and not a measurement.

A phone draws so many watts while both processors are idle, while one of them works, and while both do.  The energy of a
run is the sum over its time of the state's watts; milliseconds times watts are millijoules.  :meth:`Energy.of` takes the
time from the replay of a plan, :meth:`Energy.weighed` brings the search's tables from milliseconds to millijoules, so
that the same search finds the plan that draws least.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np

from tvm_codl.cost.transfers import TransferCost
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.plan.candidates import Axes, Candidate
from tvm_codl.plan.costs import Costs, tables
from tvm_codl.plan.eliminate import Table
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.search import find
from tvm_codl.plan.simulate import Times


class Watts(Protocol):
    """What the whole phone draws: idle, with the CPU busy, with the GPU busy, with both."""

    @property
    def idle_w(self) -> float: ...
    @property
    def cpu_w(self) -> float: ...
    @property
    def gpu_w(self) -> float: ...
    @property
    def both_w(self) -> float: ...


class Objective(Protocol):
    """What the search minimises instead of the time: its tables in another unit, and that unit of a replayed run."""

    def weighed(
        self, graph: OpGraph, candidates: Mapping[int, Sequence[Candidate]], sharing: TransferCost, costs: Costs
    ) -> Costs: ...

    def of(self, times: Times) -> float: ...


@dataclass(frozen=True)
class Energy:
    """An objective of :func:`~tvm_codl.plan.search.find`: the fewest millijoules."""

    watts: Watts

    def of(self, times: Times) -> float:
        """Millijoules of a replayed run: each moment's state's watts, summed over the whole time.

        A processor is busy from the start of a part to its end; while it waits, is woken or enqueues, it counts as idle.
        """
        busy = [
            sorted(
                (start[which], end[which]) for start, end in zip(times.starts, times.ends, strict=True) if end[which]
            )
            for which in (0, 1)
        ]
        marks = sorted({0.0, times.total_ms, *(t for parts in busy for part in parts for t in part)})
        states = ((self.watts.idle_w, self.watts.gpu_w), (self.watts.cpu_w, self.watts.both_w))
        at, total = [0, 0], 0.0
        for now, then in itertools.pairwise(marks):
            works = [0, 0]
            for which, parts in enumerate(busy):
                while at[which] < len(parts) and parts[at[which]][1] <= now:
                    at[which] += 1
                works[which] = int(at[which] < len(parts) and parts[at[which]][0] <= now)
            total += (then - now) * states[works[0]][works[1]]
        return total

    def weighed(
        self, graph: OpGraph, candidates: Mapping[int, Sequence[Candidate]], sharing: TransferCost, costs: Costs
    ) -> Costs:
        """The tables in millijoules.

        An operator draws the power of both processors while both work on it, then that of the one that works on.  Waits
        are idle; both processors rewrite a layout; the CPU copies, and passes the network's inputs and outputs.
        """
        work = []
        for operator, (by_cpu, by_gpu) in zip(graph.operators, costs.moved, strict=True):
            options = candidates[operator.id]
            shared = [option.placement.on == "split" for option in options]
            cpu, gpu = sharing.contention.together(
                [option.cpu_ms for option in options], [option.gpu_ms for option in options], by_cpu, by_gpu
            )
            has_gpu = [option.placement.on != "cpu" for option in options]
            work.append(
                self._joint(cpu + sharing.feed_ms * np.array(shared), gpu + sharing.launch_ms * np.array(has_gpu))
            )
        host = tuple(self.watts.cpu_w * table for table in costs.host)
        edges = {}
        for pair, table in costs.edges.items():
            bytes = costs.crossings[pair]
            waits = table - sharing.bytes_ms(*bytes.tables)
            copies = (bytes.to_cpu + bytes.to_gpu) * sharing.copy_ms_per_mb / 1e6
            rewriting = bytes.relayout * sharing.relayout_ms_per_mb / 1e6
            far = self._joint(
                bytes.to_cpu * sharing.far_cpu_ms_per_mb / 1e6, bytes.to_gpu * sharing.far_gpu_ms_per_mb / 1e6
            )
            watts = self.watts
            edges[pair] = watts.idle_w * waits + watts.cpu_w * copies + watts.both_w * rewriting + far
        nodes = tuple(w + end for w, end in zip(work, host, strict=True))
        return msgspec.structs.replace(costs, nodes=nodes, work=tuple(work), host=host, edges=edges)

    def _joint(self, cpu_ms: Table, gpu_ms: Table) -> Table:
        """Both work from the same moment on, for these times; infinite where either never ends."""
        runs = np.isfinite(cpu_ms) & np.isfinite(gpu_ms)
        cpu, gpu = np.where(runs, cpu_ms, 0.0), np.where(runs, gpu_ms, 0.0)
        both = np.minimum(cpu, gpu)
        drawn = self.watts.both_w * both + self.watts.cpu_w * (cpu - both) + self.watts.gpu_w * (gpu - both)
        result: Table = np.where(runs, drawn, np.inf)
        return result


def least_energy(
    graph: OpGraph,
    candidates: Mapping[int, Sequence[Candidate]],
    sharing: TransferCost,
    axes: Axes,
    energy: Energy,
    model: str = "",
    device: str = "",
    known: Sequence[Sequence[int]] = (),
) -> Plan:
    """The plan that draws least, as :func:`~tvm_codl.plan.search.find` finds it, with reasons in millijoules."""
    plan = find(graph, candidates, sharing, axes, model, device, objective=energy, known=known).plan
    weighed = energy.weighed(graph, candidates, sharing, tables(graph, candidates, sharing, axes))
    lines = []
    for planned, options, work in zip(
        plan.operators, (candidates[o.operator] for o in plan.operators), weighed.work, strict=True
    ):
        here = next(i for i, option in enumerate(options) if option.placement == planned.placement)
        drawn = [f"{work[here]:.3f} mJ {'split' if here > 1 else options[here].placement.on}"]
        drawn += [f"{work[i]:.3f} on {('cpu', 'gpu')[i]} alone" for i in (0, 1) if i != here and np.isfinite(work[i])]
        if here < 2 and np.isfinite(work[2:]).any():
            drawn.append(f"{work[2:].min():.3f} in the best split")
        lines.append(msgspec.structs.replace(planned, reason="fewest millijoules of the network: " + ", ".join(drawn)))
    return msgspec.structs.replace(plan, operators=tuple(lines))
