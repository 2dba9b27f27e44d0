from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tvm_codl.errors import CheckFailed
from tvm_codl.report.timeline import Event, busy_intervals, overlap, read_events

ticks = st.integers(0, 60)
events = st.lists(
    st.builds(
        lambda processor, kind, start, length: Event("k", processor, kind, start, start + length),
        st.sampled_from(["cpu", "gpu"]),
        st.sampled_from(["kernel", "kernel", "wait", "share"]),
        ticks,
        ticks,
    ),
    max_size=12,
)


def kernel(processor: Any, start: float, end: float) -> Event:
    return Event("k", processor, "kernel", start, end)


def by_counting(found: list[Event]) -> float:
    """Overlap of events at whole ticks, one tick at a time."""
    if not found:
        return 0.0
    first, last = int(min(e.start_us for e in found)), int(max(e.end_us for e in found))
    running = {
        p: {
            tick
            for e in found
            if e.processor == p and e.kind == "kernel"
            for tick in range(int(e.start_us), int(e.end_us))
        }
        for p in ("cpu", "gpu")
    }
    return len(running["cpu"] & running["gpu"]) / (last - first) if last > first else 0.0


@given(events)
def test_overlap_is_what_counting_gives(found: list[Event]) -> None:
    assert overlap(found) == pytest.approx(by_counting(found))


@given(events, st.floats(-1e3, 1e3), st.floats(0.01, 100))
def test_overlap_knows_no_clock_no_order_and_no_side(found: list[Event], shift: float, scale: float) -> None:
    share = overlap(found)
    assert 0.0 <= share <= 1.0
    assert overlap(found[::-1]) == pytest.approx(share)
    assert overlap([replace(e, processor="gpu" if e.processor == "cpu" else "cpu") for e in found]) == pytest.approx(
        share
    )
    moved = [replace(e, start_us=e.start_us * scale + shift, end_us=e.end_us * scale + shift) for e in found]
    assert overlap(moved) == pytest.approx(share, abs=1e-6)


@given(events)
def test_busy_intervals_are_disjoint_and_in_order(found: list[Event]) -> None:
    intervals = busy_intervals(found, "cpu")
    assert all(start <= end for start, end in intervals)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(intervals))


def test_examples() -> None:
    assert overlap([]) == 0.0
    assert overlap([kernel("cpu", 0, 10)]) == 0.0
    assert overlap([kernel("cpu", 0, 10), kernel("gpu", 0, 10)]) == 1.0
    assert overlap([kernel("cpu", 0, 10), kernel("gpu", 5, 20)]) == pytest.approx(0.25)
    # A processor that waits does not work, but its time counts.
    waits = Event("w", "cpu", "wait", 10, 20)
    assert overlap([kernel("cpu", 0, 10), waits, kernel("gpu", 0, 20)]) == pytest.approx(0.5)


def test_the_runtimes_list_is_read_as_text_or_as_values() -> None:
    first = {"name": "b", "processor": "gpu", "kind": "kernel", "start_us": 5, "end_us": 6.5, "region": "codl_gpu_0"}
    second = {"name": "a", "processor": "cpu", "kind": "wait", "start_us": 1.0, "end_us": 2.0, "region": ""}
    expected = (Event("a", "cpu", "wait", 1.0, 2.0), Event("b", "gpu", "kernel", 5.0, 6.5, "codl_gpu_0"))
    assert read_events([first, second]) == expected
    assert read_events(json.dumps([first, second])) == expected
    assert read_events(json.dumps([first, second]).encode()) == expected


@pytest.mark.parametrize(
    "timeline",
    [
        "[",
        "{}",
        [{"name": "a"}],
        [{"name": "a", "processor": "npu", "kind": "kernel", "start_us": 0, "end_us": 1, "region": ""}],
        [{"name": "a", "processor": "cpu", "kind": "kernel", "start_us": 2, "end_us": 1, "region": ""}],
    ],
)
def test_another_timeline_fails_the_check(timeline: Any) -> None:
    with pytest.raises(CheckFailed, match="timeline"):
        read_events(timeline)
