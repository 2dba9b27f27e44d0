"""Which input meets which tap of the kernel at each output of a transposed convolution that is computed phase by phase."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.relay.transposed import _phases


@st.composite
def axes(draw: st.DrawFn) -> tuple[int, int, int, int, int]:
    kernel, stride, extent = draw(st.integers(1, 7)), draw(st.integers(1, 5)), draw(st.integers(1, 9))
    before, behind = draw(st.integers(0, kernel - 1)), draw(st.integers(0, kernel - 1))
    size = (extent - 1) * stride + kernel - before - behind + draw(st.integers(0, stride - 1))
    return kernel, stride, before, extent, max(size, 1)


@given(axes())
def test_each_output_meets_the_inputs_and_taps_of_the_definition(axis: tuple[int, int, int, int, int]) -> None:
    kernel, stride, before, extent, size = axis
    phases = _phases(kernel, stride, before, extent, size)
    assert phases.first <= 0
    front, back = phases.padding
    steps = front + extent + back - phases.taps + 1
    assert steps * stride >= phases.cut + size  # what is cut off is there
    for output in range(size):
        step, phase = divmod(output + phases.cut, stride)
        reached = ((step + phases.first + tap, phases.of(phase, tap)) for tap in range(phases.taps))
        met = {(i, k) for i, k in reached if 0 <= i < extent and 0 <= k < kernel}
        assert met == {(i, k) for i in range(extent) for k in range(kernel) if stride * i + k == output + before}


@given(axes())
def test_no_more_taps_than_the_kernel_needs_at_this_stride(axis: tuple[int, int, int, int, int]) -> None:
    kernel, stride, *_ = axis
    assert _phases(*axis).taps == -(-kernel // stride)
