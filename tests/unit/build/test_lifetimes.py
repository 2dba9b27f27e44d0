"""Memory is used again only by what nobody can see it by: checked by running two lists in every order that they allow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_codl.build.lifetimes import NONE, Order, Step, places

Lists = tuple[list[Step], list[Step]]


def touch(*buffers: int) -> Step:
    return Step(buffers)


def wait(event: int) -> Step:
    return Step(waits=event)


def signal(event: int) -> Step:
    return Step(signals=event)


@st.composite
def programs(draw: st.DrawFn) -> Lists:
    """Two lists that cannot block: made step by step in an order in which they can run."""
    lists: Lists = ([], [])
    events = 0
    open_events: tuple[list[int], list[int]] = ([], [])  # signalled by that list, not waited for
    for _ in range(draw(st.integers(2, 11))):
        mine = draw(st.integers(0, 1))
        kind = draw(st.sampled_from(("touch", "touch", "signal", "wait")))
        if kind == "wait" and open_events[1 - mine]:
            waiting = open_events[1 - mine]
            lists[mine].append(wait(waiting.pop(draw(st.integers(0, len(waiting) - 1)))))
        elif kind == "signal":
            lists[mine].append(signal(events))
            open_events[mine].append(events)
            events += 1
        else:
            lists[mine].append(touch(*draw(st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True))))
    return lists


def interleavings(
    lists: Lists, at: tuple[int, int] = (0, 0), done: frozenset[int] = frozenset()
) -> Iterator[list[Step]]:
    """Every order in which the two lists can run."""
    if at == (len(lists[0]), len(lists[1])):
        yield []
    for mine in (0, 1):
        if at[mine] == len(lists[mine]):
            continue
        step = lists[mine][at[mine]]
        if step.waits != NONE and step.waits not in done:
            continue
        after = (at[0] + 1, at[1]) if mine == 0 else (at[0], at[1] + 1)
        for rest in interleavings(lists, after, done | {step.signals} - {NONE}):
            yield [step, *rest]


def assert_nothing_is_lost(order: list[Step], where: dict[int, int], sizes: dict[int, int], runs: int = 2) -> None:
    """Each buffer's first step in a run writes its bytes, and every later one finds them as they were."""
    memory: dict[int, tuple[int, int]] = {}
    for run in range(runs):
        begun: set[int] = set()
        for step in order:
            for buffer in step.touches:
                held = range(where[buffer], where[buffer] + sizes[buffer])
                if buffer in begun:
                    assert all(memory[byte] == (run, buffer) for byte in held)
                begun.add(buffer)
                memory.update(dict.fromkeys(held, (run, buffer)))


@settings(max_examples=300, deadline=None)
@given(programs(), st.lists(st.integers(1, 9), min_size=6, max_size=6), st.sampled_from((1, 4)))
def test_in_no_order_is_a_buffer_overwritten_while_it_is_needed(
    lists: Lists, bytes_: list[int], alignment: int
) -> None:
    touched = {b for steps in lists for step in steps for b in step.touches}
    sizes = {b: bytes_[b] for b in touched}
    where = places(Order(lists), sizes, alignment)
    assert where.keys() == sizes.keys()
    assert all(at >= 0 and at % alignment == 0 for at in where.values())
    for order in interleavings(lists):
        assert_nothing_is_lost(order, where, sizes)


@settings(max_examples=300, deadline=None)
@given(programs())
def test_two_buffers_are_apart_exactly_where_no_order_lets_them_meet(lists: Lists) -> None:
    order = Order(lists)
    touched = sorted({b for steps in lists for step in steps for b in step.touches})
    meet: set[tuple[int, int]] = set()
    firsts: dict[tuple[int, int], set[bool]] = {}
    for run in interleavings(lists):
        span = {b: [i for i, s in enumerate(run) if b in s.touches] for b in touched}
        for a in touched:
            for b in touched:
                if a < b and max(span[a][0], span[b][0]) <= min(span[a][-1], span[b][-1]):
                    meet.add((a, b))
                firsts.setdefault((a, b), set()).add(span[a][0] < span[b][0])
    for a in touched:
        for b in touched:
            # Buffers that come in either order could follow each other in any single run, and still race.
            if a < b:
                assert order.apart(a, b) == ((a, b) not in meet and len(firsts[a, b]) == 1)


def test_a_chain_on_one_processor_needs_two_places() -> None:
    steps = [touch(i, i + 1) for i in range(9)]
    where = places(Order((steps, [])), dict.fromkeys(range(10), 100), 128)
    assert set(where.values()) == {0, 128}


def test_without_a_wait_the_other_processor_gets_memory_of_its_own() -> None:
    cpu, gpu = [touch(0), touch(0)], [touch(1), touch(1)]
    assert len(set(places(Order((cpu, gpu)), {0: 8, 1: 8}, 1).values())) == 2
    handed = ([touch(0), touch(0), signal(0)], [wait(0), touch(1), touch(1)])
    assert len(set(places(Order(handed), {0: 8, 1: 8}, 1).values())) == 1


def test_what_no_step_touches_is_left_alone() -> None:
    assert len(set(places(Order(([touch(0)], [])), {0: 8, 1: 8}, 1).values())) == 2


def test_small_buffers_lie_side_by_side_where_a_large_one_was() -> None:
    steps = [touch(0), touch(1, 2)]
    assert places(Order((steps, [])), {0: 256, 1: 128, 2: 128}, 128) == {0: 0, 1: 0, 2: 128}


def test_a_wait_that_nobody_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="event 3"):
        Order(([wait(3)], []))
