"""The schedule of a plan: tasks on processors, the sources of their inputs, and their regions.

A :class:`Task` is an operator, or one of its two pieces, on a processor.  A processor runs its tasks in the
operators' order.  A region is a run of them between two points at which the processors wait for each other: it begins
where a task needs something new from the other processor and ends where the other one waits for it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.slab import Need, Slab, shape_of
from tvm_codl.graph.split import Piece, axes, piece, whole
from tvm_codl.plan.plan import Placement

Processor = Literal["cpu", "gpu"]


class Source(msgspec.Struct, frozen=True):
    """Where a part of a tensor comes from.

    ``task``: one task makes it, and it is ``part`` of that task's own result.  No task: the tensor is an input of the
    network (``joined`` False), or two tasks make it and it is ``part`` of what their shares join to.
    """

    tensor: int
    part: Need
    task: int | None = None
    joined: bool = False


class Task(msgspec.Struct, frozen=True):
    """An operator or a piece of one; ``feeds`` are the sources of its inputs, ``needs`` the tasks that make them.

    ``share`` is the part of its result that is joined with the other piece's, None for all of it: pieces may overlap.
    """

    id: int
    operator: int
    processor: Processor
    piece: Piece
    feeds: tuple[Source, ...]
    needs: frozenset[int]
    share: Slab | None = None


class Region(msgspec.Struct, frozen=True):
    """Tasks, in order, that run on one processor as one function."""

    processor: Processor
    tasks: tuple[int, ...]


class Schedule(msgspec.Struct, frozen=True):
    """``tasks`` by id; ``regions`` in an order in which they can run; ``makers`` the task or two of each tensor."""

    tasks: tuple[Task, ...]
    regions: tuple[Region, ...]
    makers: dict[int, tuple[int, ...]]


def schedule(graph: OpGraph, placements: dict[int, Placement]) -> Schedule:
    """The tasks of a plan and their regions.  ``placements`` are legal for the graph."""
    tasks: list[Task] = []
    makers: dict[int, tuple[int, ...]] = {}
    for operator in graph.operators:
        placement = placements[operator.id]
        made = []
        for processor, part, share in _pieces(graph, operator.id, placement):
            feeds = tuple(
                _source(tensor, need, processor, makers, tasks)
                for tensor, need in zip(part.operator.inputs, part.feeds, strict=True)
            )
            needs = frozenset(task for feed in feeds for task in _makers_of(feed, makers))
            made.append(len(tasks))
            tasks.append(Task(len(tasks), operator.id, processor, part, feeds, needs, share))
        for tensor in operator.outputs:
            makers[tensor] = tuple(made)
    return Schedule(tuple(tasks), tuple(_regions(tasks)), makers)


def _pieces(graph: OpGraph, id: int, placement: Placement) -> list[tuple[Processor, Piece, Slab | None]]:
    operator = graph.operators[id]
    if placement.on != "split":
        return [(placement.on, whole(operator, graph), None)]
    axis, at = axes(operator, graph)[placement.axis], placement.at
    (_, end), (start, extent) = placement.parts(axis.extent)
    return [
        ("cpu", piece(operator, graph, axis.name, 0, end), Slab(axis.index, 0, at) if end > at else None),
        (
            "gpu",
            piece(operator, graph, axis.name, start, extent),
            Slab(axis.index, at - start, extent - start) if start < at else None,
        ),
    ]


def _source(
    tensor: int, need: Need, processor: Processor, makers: dict[int, tuple[int, ...]], tasks: list[Task]
) -> Source:
    made_by = makers.get(tensor, ())
    if len(made_by) == 1:
        return Source(tensor, need, made_by[0])
    # Where pieces overlap both may hold it: a processor prefers its own.
    for id in sorted(made_by, key=lambda id: tasks[id].processor != processor):
        output = tasks[id].piece.output
        if need is not None and output is not None and need.inside(output):
            part: Slab | None = need.within(output)
            if need == output:
                part = None
            return Source(tensor, part, id)
    return Source(tensor, need, None, bool(made_by))


def _makers_of(source: Source, makers: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    return makers[source.tensor] if source.joined else () if source.task is None else (source.task,)


def _regions(tasks: list[Task]) -> list[Region]:
    regions: list[Region] = []
    for mine in ("cpu", "gpu"):
        starts = _wait_points(tasks, mine)
        other: Processor = "gpu" if mine == "cpu" else "cpu"
        ends = set(_wait_points(tasks, other).values())
        run: list[int] = []
        for task in tasks:
            if task.processor != mine:
                continue
            if run and (task.id in starts or run[-1] in ends):
                regions.append(Region(mine, tuple(run)))
                run = []
            run.append(task.id)
        if run:
            regions.append(Region(mine, tuple(run)))
    # A region waits only for regions whose last operator is before its first one: this order can run.
    return sorted(regions, key=lambda region: region.tasks[0])


def _wait_points(tasks: list[Task], processor: str) -> dict[int, int]:
    """Tasks of ``processor`` that wait, and for which task of the other one.

    Both run in order, so a task waits only if it needs a later one than all before it did.
    """
    waited, points = -1, {}
    for task in tasks:
        if task.processor != processor:
            continue
        latest = max((id for id in task.needs if tasks[id].processor != processor), default=-1)
        if latest > waited:
            waited = points[task.id] = latest
    return points


def source_shape(source: Source, graph: OpGraph, tasks: tuple[Task, ...]) -> tuple[int, ...]:
    """The shape of the part that a source is."""
    shape = graph.tensors[source.tensor].shape
    if source.task is not None:
        shape = shape_of(shape, tasks[source.task].piece.output)
    return shape_of(shape, source.part)
