from __future__ import annotations

from pathlib import Path

from tvm_codl.cost.contention import Contention, Side
from tvm_codl.cost.kept_sharing import LOOKS, keep_sharing, kept_sharing, usual_sharing
from tvm_codl.cost.sharing import SharingCost

FIRST = SharingCost(0.5, 0.25, contention=Contention(Side(0.1, 4.0), bandwidth=3.0))
SECOND = SharingCost(0.125, 0.0625)


def test_the_newest_of_a_device_and_build_is_kept(tmp_path: Path) -> None:
    store = tmp_path / "some records.sqlite"
    assert kept_sharing(store, "phone", "b1") is None
    keep_sharing(store, "phone", "b1", FIRST)
    keep_sharing(store, "phone", "b2", SECOND)
    found = kept_sharing(store, "phone", "b1")
    assert found is not None and found.sharing == FIRST and found.when > 0
    keep_sharing(store, "phone", "b1", SECOND)
    again = kept_sharing(store, "phone", "b1")
    assert again is not None and again.sharing == SECOND
    assert kept_sharing(store, "other", "b1") is None
    assert kept_sharing(tmp_path / "other.sqlite", "phone", "b1") is None


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    store = tmp_path / "records.sqlite"
    keep_sharing(store, "phone", "b", FIRST)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for cut in range(1, len(whole)):
        file.write_bytes(whole + whole[:cut])
        found = kept_sharing(store, "phone", "b")
        assert found is not None and found.sharing == FIRST
        keep_sharing(store, "phone", "b", SECOND)
        found = kept_sharing(store, "phone", "b")
        assert found is not None and found.sharing == SECOND


def test_what_is_usual_is_each_costs_median_of_the_last_looks(tmp_path: Path) -> None:
    store = tmp_path / "records.sqlite"
    assert usual_sharing(store, "phone", "b") is None
    keep_sharing(store, "phone", "b", FIRST)
    assert usual_sharing(store, "phone", "b") == FIRST
    for wait, always in ((0.25, 0.3), (0.75, 0.2)):
        keep_sharing(store, "phone", "b", SharingCost(wait, 0.25, contention=Contention(Side(always), bandwidth=5.0)))
    keep_sharing(store, "phone", "other", SECOND)
    found = usual_sharing(store, "phone", "b")
    assert found == SharingCost(0.5, 0.25, contention=Contention(Side(0.2), bandwidth=5.0))
    for _ in range(LOOKS):
        keep_sharing(store, "phone", "b", SECOND)
    assert usual_sharing(store, "phone", "b") == SECOND
