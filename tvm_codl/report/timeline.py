"""Timeline: the events of one run on both processors, and how much they overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from tvm_codl.errors import CheckFailed

Interval = tuple[float, float]


class Event(msgspec.Struct, frozen=True):
    """One kernel, wait, share, or switch of plans, of the function ``region``; microseconds on one clock.

    A switch happens before the run: it stands at its start and has no length.
    """

    name: str
    processor: Literal["cpu", "gpu"]
    kind: Literal["kernel", "wait", "share", "switch"]
    start_us: float
    end_us: float
    region: str = ""


def read_events(timeline: bytes | str | Sequence[object]) -> tuple[Event, ...]:
    """The runtime's timeline, as JSON text or as its decoded list, in order of start.

    Raises :class:`CheckFailed` for anything else, and for an event that ends before it starts.
    """
    try:
        if isinstance(timeline, (bytes, str)):
            events = msgspec.json.decode(timeline, type=tuple[Event, ...])
        else:
            events = msgspec.convert(timeline, tuple[Event, ...], from_attributes=True)
    except msgspec.DecodeError as error:
        raise CheckFailed("the runtime's timeline cannot be read", str(error)) from error
    for event in events:
        if not event.start_us <= event.end_us:
            raise CheckFailed("the runtime's timeline has an event that ends before it starts", repr(event))
    return tuple(sorted(events, key=lambda event: (event.start_us, event.end_us, event.processor, event.name)))


def busy_intervals(events: Iterable[Event], processor: str) -> list[Interval]:
    """Disjoint intervals, in order, in which ``processor`` ran at least one kernel; waits do not count."""
    times = sorted((e.start_us, e.end_us) for e in events if e.processor == processor and e.kind == "kernel")
    union: list[Interval] = []
    for start, end in times:
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def overlap(events: Sequence[Event]) -> float:
    """Share, 0 to 1, of the time from the first start to the last end in which both processors ran a kernel."""
    if not events:
        return 0.0
    span = max(e.end_us for e in events) - min(e.start_us for e in events)
    cpu, gpu = busy_intervals(events, "cpu"), busy_intervals(events, "gpu")
    common = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in cpu for b in gpu)
    return common / span if span > 0 else 0.0
