"""Memory is used again only by what nobody can see it by: checked by running two lists in every order that they allow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_codl.build import lifetimes
from tvm_codl.build.lifetimes import NONE, Order, Step, Touch, place_buffers

Lists = tuple[list[Step], list[Step]]
BUFFERS = 6


def touch(*buffers: int, lo: int = 0, hi: int = 8) -> Step:
    return Step(tuple(Touch(buffer, lo, hi) for buffer in buffers))


def wait(event: int) -> Step:
    return Step(waits=event)


def signal(event: int) -> Step:
    return Step(signals=event)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Lists, dict[int, int]]:
    """Two lists that cannot block, made step by step in an order in which they can run; and their buffers' sizes."""
    sizes = {buffer: draw(st.integers(1, 9)) for buffer in range(BUFFERS)}
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
            buffers = draw(st.lists(st.integers(0, BUFFERS - 1), min_size=1, max_size=3, unique=True))
            lists[mine].append(Step(tuple(draw(touches(b, sizes[b])) for b in buffers)))
    return lists, sizes


@st.composite
def touches(draw: st.DrawFn, buffer: int, size: int) -> Touch:
    lo = draw(st.sampled_from((0, 0, size // 3, size // 2)))
    return Touch(buffer, lo, draw(st.sampled_from(sorted({size, max(lo + 1, size // 2), max(lo + 1, 2 * size // 3)}))))


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


def assert_nothing_is_lost(order: list[Step], where: dict[int, int], runs: int = 2) -> None:
    """A byte of a buffer is written by the first step of a run that touches it; every later one finds it as it was."""
    memory: dict[int, tuple[int, int, int]] = {}
    for run in range(runs):
        begun: set[tuple[int, int]] = set()
        for step in order:
            held = [(t.buffer, byte) for t in step.touches for byte in range(t.lo, t.hi)]
            for buffer, byte in held:
                if (buffer, byte) in begun:
                    assert memory[where[buffer] + byte] == (run, buffer, byte)
            for buffer, byte in held:
                begun.add((buffer, byte))
                memory[where[buffer] + byte] = (run, buffer, byte)
            # A step needs all that it touches at once.
            assert all(memory[where[buffer] + byte] == (run, buffer, byte) for buffer, byte in held)


@settings(max_examples=examples(300))
@given(programs(), st.sampled_from((1, 4)))
def test_in_no_order_is_a_byte_overwritten_while_it_is_needed(
    program: tuple[Lists, dict[int, int]], alignment: int
) -> None:
    lists, sizes = program
    where = place_buffers(Order(lists), sizes, alignment)
    assert where.keys() == sizes.keys()
    assert all(at >= 0 and at % alignment == 0 for at in where.values())
    for order in interleavings(lists):
        assert_nothing_is_lost(order, where)


@settings(max_examples=examples(300))
@given(programs())
def test_parts_follow_each_other_exactly_where_no_order_lets_them_meet(program: tuple[Lists, dict[int, int]]) -> None:
    lists, sizes = program
    parts = Order(lists).parts(sizes)
    orders = list(interleavings(lists))
    for buffer, size in sizes.items():
        mine = [p for p in parts if p.buffer == buffer]
        assert [p.lo for p in mine] == [0, *(p.hi for p in mine[:-1])] and mine[-1].hi == size
    spans = {
        (number, k): [i for i, s in enumerate(order) if any(_covers(t, p.buffer, p.lo) for t in s.touches)]
        for number, order in enumerate(orders)
        for k, p in enumerate(parts)
    }
    for a, one in enumerate(parts):
        for b, other in enumerate(parts):
            seen = [(spans[n, a], spans[n, b]) for n in range(len(orders))]
            always = all(x and y and x[-1] < y[0] for x, y in seen)
            assert other.follows(one) == always, (one, other)


def _covers(touched: Touch, buffer: int, byte: int) -> bool:
    return touched.buffer == buffer and touched.lo <= byte < touched.hi


@settings(max_examples=examples(200))
@given(programs())
def test_a_place_is_never_below_the_bound_and_always_the_same(program: tuple[Lists, dict[int, int]]) -> None:
    lists, sizes = program
    where = place_buffers(Order(lists), sizes, 1)
    bound = lifetimes._Table(Order(lists).parts(sizes)).lower_bound()
    assert max(sizes.values()) <= bound <= max(where[b] + size for b, size in sizes.items()) <= sum(sizes.values())
    assert place_buffers(Order(lists), sizes, 1) == where


def test_a_chain_on_one_processor_needs_two_places() -> None:
    steps = [touch(i, i + 1) for i in range(9)]
    where = place_buffers(Order((steps, [])), dict.fromkeys(range(10), 8), 8)
    assert set(where.values()) == {0, 8}


def test_two_halves_of_a_chain_that_never_meet_need_two_places() -> None:
    """Neither processor waits, so that one may be layers ahead: whole tensors would all be needed at once."""
    cpu = [touch(i, i + 1, hi=5) for i in range(9)]
    gpu = [touch(i, i + 1, lo=5) for i in range(9)]
    where = place_buffers(Order((cpu, gpu)), dict.fromkeys(range(10), 8), 1)
    assert set(where.values()) == {0, 8}


def test_rows_that_the_other_processor_reads_stay_until_it_has() -> None:
    """The GPU reads one row of the CPU's half of tensor 0, at a time that the CPU does not know."""
    cpu = [touch(0, hi=4), signal(0), touch(1, hi=4), touch(2, hi=4)]
    gpu = [wait(0), touch(0, lo=3), touch(1, lo=4)]
    told = ([*cpu[:3], wait(1), cpu[3]], [*gpu[:2], signal(1), gpu[2]])
    for lists, free in (((cpu, gpu), False), (told, True)):
        parts = {(p.buffer, p.lo): p for p in Order(lists).parts({0: 8, 1: 8, 2: 4})}
        assert parts[1, 0].follows(parts[0, 0])
        assert not parts[1, 0].follows(parts[0, 3])
        assert parts[2, 0].follows(parts[0, 3]) == free


def test_without_a_wait_the_other_processor_gets_memory_of_its_own() -> None:
    cpu, gpu = [touch(0), touch(0)], [touch(1), touch(1)]
    assert len(set(place_buffers(Order((cpu, gpu)), {0: 8, 1: 8}, 1).values())) == 2
    handed = ([touch(0), touch(0), signal(0)], [wait(0), touch(1), touch(1)])
    assert len(set(place_buffers(Order(handed), {0: 8, 1: 8}, 1).values())) == 1


def test_what_no_step_touches_is_left_alone() -> None:
    assert len(set(place_buffers(Order(([touch(0)], [])), {0: 8, 1: 8}, 1).values())) == 2
    half = place_buffers(Order(([touch(0, hi=4), touch(1)], [])), {0: 8, 1: 8}, 1)
    assert half[1] >= half[0] + 8 or half[1] + 8 <= half[0] + 4


def test_small_buffers_lie_side_by_side_where_a_large_one_was() -> None:
    steps = [touch(0, hi=16), touch(1, 2)]
    assert place_buffers(Order((steps, [])), {0: 16, 1: 8, 2: 8}, 8) == {0: 0, 1: 0, 2: 8}


def test_nothing_needs_no_place() -> None:
    assert place_buffers(Order(([], [])), {}, 8) == {}


def test_a_wait_that_nobody_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="event 3"):
        Order(([wait(3)], []))
