"""A plan's parts on two in-order lists, simulated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_codl.cost.contention import Contention, Side
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.plan.simulate import Part, Step, simulate

FREE = TransferCost(0.0, 0.0, 0.0, 0.0)


def test_branches_run_side_by_side_and_join() -> None:
    steps = [Step(cpu=Part(2.0)), Step(gpu=Part(3.0)), Step(cpu=Part(1.0, after=(1,)))]
    found = simulate(steps, FREE)
    assert found.total_ms == pytest.approx(4.0)
    assert found.ends == pytest.approx(np.array([[2.0, 0.0], [0.0, 3.0], [4.0, 0.0]]))
    assert found.waited_ms == pytest.approx((1.0, 0.0))


def test_a_processor_runs_ahead_where_nothing_crosses() -> None:
    steps = [Step(Part(2.0), Part(1.0)), Step(Part(1.0), Part(2.0))]
    assert simulate(steps, FREE).total_ms == pytest.approx(3.0)
    crossing = [steps[0], Step(Part(1.0, after=(0,)), Part(2.0, after=(0,)))]
    assert simulate(crossing, FREE).total_ms == pytest.approx(4.0)


def test_only_who_comes_first_waits() -> None:
    cost = TransferCost(wait_cpu_ms=0.25, wait_gpu_ms=0.5)
    both = {"after": (0,)}
    cpu_last = [Step(Part(2.0), Part(1.0)), Step(Part(1.0, **both), Part(1.0, **both))]
    assert simulate(cpu_last, cost).ends[1] == pytest.approx((3.0, 3.5))
    gpu_last = [Step(Part(1.0), Part(2.0)), Step(Part(1.0, **both), Part(1.0, **both))]
    assert simulate(gpu_last, cost).ends[1] == pytest.approx((3.25, 3.0))


def test_releasing_a_gpu_that_sleeps_costs_the_cpu_and_feeding_it_too() -> None:
    steps = [Step(cpu=Part(1.0)), Step(gpu=Part(1.0, after=(0,))), Step(cpu=Part(1.0))]
    assert simulate(steps, TransferCost(0.0, 0.0, signal_ms=0.125)).ends[2][0] == pytest.approx(2.125)
    assert simulate(steps, TransferCost(0.0, 0.0, feed_ms=0.25)).ends[2][0] == pytest.approx(2.25)
    queue = [Step(gpu=Part(1.0)), Step(gpu=Part(1.0))]
    assert simulate(queue, TransferCost(0.0, 0.0, launch_ms=0.125, start_ms=0.5)).total_ms == pytest.approx(2.625)


def test_both_are_slowed_for_as_long_as_both_work() -> None:
    law = TransferCost(0.0, 0.0, contention=Contention(Side(always=1.0), Side(always=0.0)))
    found = simulate([Step(Part(3.0), Part(2.0))], law)
    # Two ms at half speed beside the GPU, the other two alone.
    assert found.ends[0] == pytest.approx((4.0, 2.0))


parts = st.one_of(st.none(), st.builds(Part, st.floats(0.01, 5.0), st.floats(0.0, 10.0), st.floats(0.0, 0.5)))


@given(st.lists(st.tuples(parts, parts), min_size=1, max_size=12), st.data())
@settings(max_examples=examples(60))
def test_a_run_lasts_at_least_as_long_as_each_list_and_no_longer_than_one_after_the_other(
    drawn: list[tuple[Part | None, Part | None]], data: st.DataObject
) -> None:
    steps = []
    for i, (cpu, gpu) in enumerate(drawn):
        made = []
        for part in (cpu, gpu):
            after = tuple(data.draw(st.sets(st.integers(0, i - 1), max_size=2))) if part is not None and i else ()
            made.append(Part(part.ms, part.bytes, part.extra_ms, after) if part is not None else None)
        steps.append(Step(*made))
    cost = TransferCost(0.01, 0.05, contention=Contention(Side(0.2, 0.1), Side(0.1, 0.3)))
    found = simulate(steps, cost)
    sums = [sum(p.ms + p.extra_ms for s in steps if (p := (s.cpu, s.gpu)[which]) is not None) for which in (0, 1)]
    assert max(sums) - 1e-6 <= found.total_ms <= 1.4 * sum(sums) + 0.05 * 2 * len(steps) + 1e-6
    for i, step in enumerate(steps):
        for which, part in enumerate((step.cpu, step.gpu)):
            if part is not None:
                assert all(found.ends[i][which] > found.ends[k][1 - which] for k in part.after)


def test_what_takes_for_ever_ends_at_infinity() -> None:
    never = Part(np.inf)
    cost = TransferCost(0.01, 0.05, signal_ms=0.1, contention=Contention(Side(0.2, 0.1), Side(0.1, 0.3)))
    for steps in (
        [Step(cpu=Part(1.0)), Step(cpu=never), Step(cpu=Part(1.0))],
        [Step(gpu=never), Step(cpu=Part(1.0, after=(0,)))],
        [Step(never, Part(2.0)), Step(Part(1.0, after=(0,)), Part(1.0, after=(0,)))],
        [Step(never, never), Step(never, never)],
    ):
        assert simulate(steps, cost).total_ms == np.inf


def test_parts_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        simulate([Step(cpu=Part(1.0, after=(1,))), Step(gpu=Part(1.0, after=(0,)))], FREE)


def test_a_move_goes_on_beside_both_processors_and_its_reader_waits_for_its_end() -> None:
    steps = [Step(cpu=Part(1.0), gpu=Part(3.0)), Step(gpu=Part(1.0, after=(0,), moves=(1.5,)))]
    assert simulate(steps, FREE).ends[1][1] == pytest.approx(4.0), "it ended while the GPU worked"
    slow = [steps[0], Step(gpu=Part(1.0, after=(0,), moves=(2.5,)))]
    cost = TransferCost(0.0, wait_gpu_ms=0.25)
    assert simulate(slow, cost).ends[1][1] == pytest.approx(1.0 + 2.5 + 0.25 + 1.0)
    assert simulate(slow, cost).waited_ms == pytest.approx((0.0, 0.5))


def test_moves_of_one_direction_follow_each_other_and_what_has_moved_moves_no_more() -> None:
    made = [Step(cpu=Part(1.0)), Step(cpu=Part(1.0))]
    both = Step(gpu=Part(1.0, after=(0, 1), moves=(3.0, 2.0)))
    assert simulate([*made, both], FREE).total_ms == pytest.approx(1.0 + 3.0 + 2.0 + 1.0)
    again = Step(gpu=Part(1.0, after=(0,), moves=(3.0,)))
    assert simulate([*made, both, again], FREE).total_ms == pytest.approx(8.0)
    back = Step(cpu=Part(1.0, after=(2,), moves=(4.0,)))
    assert simulate([*made, both, back, again], FREE).total_ms == pytest.approx(12.0), "the other way is another one"


def test_enqueueing_a_move_takes_the_cpus_time() -> None:
    steps = [Step(gpu=Part(1.0)), Step(cpu=Part(1.0, after=(0,), moves=(0.0,)))]
    cost = TransferCost(0.0, 0.0, feed_ms=0.125, move_feed_ms=2.0)
    assert simulate(steps, cost).total_ms == pytest.approx(0.125 + 2.0 + 1.0)
