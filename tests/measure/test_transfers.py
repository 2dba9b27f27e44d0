"""What a timeline says of waits; the spans are written by hand."""

from __future__ import annotations

import pytest

from tvm_codl.measure.transfers import feed_beside, kernel_and_rest, pauses, ping_pong, readers, start, waits


def span(processor: str, begin: float, end: float, kind: str = "kernel", name: str = "k") -> dict[str, object]:
    return {"processor": processor, "kind": kind, "name": name, "region": name, "start_us": begin, "end_us": end}


RUN = [
    span("cpu", 0, 4, "share", "feed"),
    span("gpu", 10, 20),
    span("cpu", 22, 30),
    span("cpu", 30, 39, "share", "signal"),
    span("gpu", 60, 70),
    span("gpu", 73, 80),
    span("cpu", 81, 90),
]


def test_a_pause_is_from_the_others_end_to_the_next_start() -> None:
    assert pauses(RUN, "cpu", "gpu") == pytest.approx(0.0015)
    assert pauses(RUN, "gpu", "cpu") == pytest.approx(0.030)
    assert pauses(RUN, "gpu", "gpu") == pytest.approx(0.003)
    assert pauses(RUN[:1], "cpu", "gpu") == 0.0


def test_waits_are_those_of_the_look_that_nobody_disturbed() -> None:
    asleep = [span("gpu", 0, 10), span("cpu", 240, 250), span("gpu", 500, 510)]
    assert waits([[asleep] * 3]) == pytest.approx((0.230, 0.250))
    assert waits([[asleep] * 3, [RUN, RUN, asleep], [asleep] * 3]) == pytest.approx((0.0015, 0.030))


def test_a_start_is_from_the_first_event_to_the_gpus_first_kernel() -> None:
    assert start(RUN) == pytest.approx(0.010)


def test_a_run_is_its_kernels_and_the_rest() -> None:
    assert kernel_and_rest(0.15, 0.25, 10) == pytest.approx((0.01, 0.05))
    assert kernel_and_rest(0.2, 0.1, 10) == (0.0, pytest.approx(0.3))  # disturbed


def test_what_is_enqueued_beside_kernels_is_shared_by_the_signals_or_moves() -> None:
    assert feed_beside(RUN, 0.001, "cpu") == pytest.approx(0.001)  # 4 us, of which three kernels take one each
    moved = [*RUN, span("gpu", 90, 91, "share", "to cpu"), span("gpu", 91, 92, "share", "to gpu")]
    assert feed_beside(moved, 0.001, "gpu") == pytest.approx(0.0005)
    assert feed_beside(RUN, 0.002, "cpu") == 0.0


def test_the_programs_pass_every_tensor_to_the_other_processor() -> None:
    flow = ping_pong((1, 8), 3)
    assert [r.processor for r in flow.regions] == ["gpu", "cpu"] * 3
    assert [r.inputs[0].part.root for r in flow.regions] == list(range(6))
    made = {r.outputs[0].root: r for r in readers((1, 16, 16, 4), 2).regions}
    reading = [r for r in readers((1, 16, 16, 4), 2).regions if "_read_" in r.name]
    assert len(reading) == 4
    assert all(made[r.inputs[0].part.root].processor != r.processor for r in reading)
