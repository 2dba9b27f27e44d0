from __future__ import annotations

from pathlib import Path

from tvm_codl.cost.contention import Contention, Side
from tvm_codl.cost.transfer_store import NEWEST, load_transfer_cost, load_usual_transfer_cost, save_transfer_cost
from tvm_codl.cost.transfers import TransferCost

FIRST = TransferCost(0.5, 0.25, contention=Contention(Side(0.1, 4.0), bandwidth=3.0))
SECOND = TransferCost(0.125, 0.0625)


def test_the_newest_of_a_device_and_build_is_kept(tmp_path: Path) -> None:
    store = tmp_path / "some records.sqlite"
    assert load_transfer_cost(store, "phone", "b1") is None
    save_transfer_cost(store, "phone", "b1", FIRST)
    save_transfer_cost(store, "phone", "b2", SECOND)
    found = load_transfer_cost(store, "phone", "b1")
    assert found is not None and found.sharing == FIRST and found.when > 0
    save_transfer_cost(store, "phone", "b1", SECOND)
    again = load_transfer_cost(store, "phone", "b1")
    assert again is not None and again.sharing == SECOND
    assert load_transfer_cost(store, "other", "b1") is None
    assert load_transfer_cost(tmp_path / "other.sqlite", "phone", "b1") is None


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    store = tmp_path / "records.sqlite"
    save_transfer_cost(store, "phone", "b", FIRST)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for cut in range(1, len(whole)):
        file.write_bytes(whole + whole[:cut])
        found = load_transfer_cost(store, "phone", "b")
        assert found is not None and found.sharing == FIRST
        save_transfer_cost(store, "phone", "b", SECOND)
        found = load_transfer_cost(store, "phone", "b")
        assert found is not None and found.sharing == SECOND


def test_what_is_usual_is_each_costs_median_of_the_last_looks(tmp_path: Path) -> None:
    store = tmp_path / "records.sqlite"
    assert load_usual_transfer_cost(store, "phone", "b") is None
    save_transfer_cost(store, "phone", "b", FIRST)
    assert load_usual_transfer_cost(store, "phone", "b") == FIRST
    for wait, always in ((0.25, 0.3), (0.75, 0.2)):
        save_transfer_cost(
            store, "phone", "b", TransferCost(wait, 0.25, contention=Contention(Side(always), bandwidth=5.0))
        )
    save_transfer_cost(store, "phone", "other", SECOND)
    found = load_usual_transfer_cost(store, "phone", "b")
    assert found == TransferCost(0.5, 0.25, contention=Contention(Side(0.2), bandwidth=5.0))
    for _ in range(NEWEST):
        save_transfer_cost(store, "phone", "b", SECOND)
    assert load_usual_transfer_cost(store, "phone", "b") == SECOND


def test_moves_that_an_older_version_measured_count_in_both_directions(tmp_path: Path) -> None:
    store = tmp_path / "records.sqlite"
    for cost in (TransferCost(copy_ms_per_mb=0.5), TransferCost(to_cpu_ms_per_mb=0.25, to_gpu_ms_per_mb=1.0)):
        save_transfer_cost(store, "phone", "b", cost)
    found = load_usual_transfer_cost(store, "phone", "b")
    assert found == TransferCost(to_cpu_ms_per_mb=0.25, to_gpu_ms_per_mb=0.5)
