"""How groups share work: whole warps, no more work-items than a device allows, no unit left without a group."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.kernels.gpu import Gpu
from tvm_codl.kernels.schedules.groups import threads
from tvm_codl.kernels.schedules.reductions import column_share, row_axis, row_share, slices_of

GPUS = st.builds(
    lambda kind, units, most, wave: Gpu(kind, 4, wave if kind == "local" else 0, units, most).filled(),
    kind=st.sampled_from(["bifrost", "valhall", "adreno", "mobile", "local"]),
    units=st.integers(1, 150),
    most=st.sampled_from([64, 128, 256, 1024]),
    wave=st.sampled_from([16, 32, 64]),
)
EXTENTS = st.lists(st.integers(1, 300), min_size=1, max_size=3)


@given(GPUS, st.integers(1, 1 << 20))
def test_groups_are_whole_warps_and_feed_every_unit_where_they_can(gpu: Gpu, items: int) -> None:
    group = threads(gpu, items)
    assert group == items or gpu.warp <= group <= gpu.max_group
    if group >= 2 * gpu.warp and group < items:
        assert items >= group * gpu.units


@given(GPUS, st.integers(1, 5000), EXTENTS, st.sampled_from([1, 4]))
def test_rows_are_shared_by_whole_groups(gpu: Gpu, length: int, rows: list[int], lanes: int) -> None:
    share = row_share(gpu, length, rows, lanes)
    if share is None:
        assert length // lanes < 8 or gpu.warp > 8 * min(rows[row_axis(rows)], gpu.group // 8)
        return
    assert share.parts * lanes <= length and share.results <= rows[row_axis(rows)]
    assert share.parts * share.results <= gpu.group
    assert share.parts * share.results >= gpu.warp or math.prod(rows) <= share.results


@given(GPUS, st.integers(1, 100_000), st.integers(1, 500), st.integers(1, 8))
def test_columns_are_shared_where_they_are_few(gpu: Gpu, length: int, vectors: int, batch: int) -> None:
    share = column_share(gpu, length, vectors, batch)
    if batch * vectors >= gpu.units * gpu.group:
        assert share is None
    if share is None:
        return
    assert vectors % share.results == 0 and share.parts * 4 <= length
    assert share.parts * share.results <= gpu.group
    assert share.parts * share.results >= gpu.warp or batch * vectors <= share.results
    slices = slices_of(gpu, length, batch * vectors, share)
    assert (slices == 0) == (length <= 128 * max(share.parts, 8))
    assert not slices or 8 <= slices <= length // 128
