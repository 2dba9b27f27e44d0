from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tvm_codl.cost.contention import Contention, Side
from tvm_codl.cost.transfers import TransferCost

SOME, NONE = np.array([8.0]), np.array([0.0])


def test_who_comes_last_does_not_wait() -> None:
    cost = TransferCost(wait_cpu_ms=0.002, wait_gpu_ms=0.05)
    assert cost.wait_ms(SOME, SOME, 1.0) == pytest.approx(0.05)
    assert cost.wait_ms(SOME, SOME, -1.0) == pytest.approx(0.002)
    assert cost.wait_ms(SOME, NONE, 1.0) == pytest.approx(0.0)
    assert cost.wait_ms(NONE, SOME, -1.0) == pytest.approx(0.0)
    assert cost.wait_ms(NONE, NONE, 0.0) == pytest.approx(0.0)


def test_in_doubt_who_comes_last_the_wait_is_the_mean() -> None:
    cost = TransferCost(wait_cpu_ms=0.0, wait_gpu_ms=0.04)
    assert cost.wait_ms(SOME, SOME, 0.0, 0.2) == pytest.approx(0.02)
    assert cost.wait_ms(SOME, SOME, 0.1, 0.2) == pytest.approx(0.03)
    assert cost.wait_ms(SOME, SOME, 0.3, 0.2) == pytest.approx(0.04)


def test_copies_add_up_and_reading_from_afar_does_not() -> None:
    cost = TransferCost(0.0, 0.0, copy_ms_per_mb=1.0, join_ms_per_mb=2.0)
    assert cost.bytes_ms(np.array([1e6]), np.array([2e6]), np.array([3e6])) == pytest.approx(9.0)
    far = TransferCost(0.0, 0.0, join_ms_per_mb=0.0, far_cpu_ms_per_mb=1.0, far_gpu_ms_per_mb=1.0)
    assert far.bytes_ms(np.array([1e6]), np.array([2e6]), NONE) == pytest.approx(2.0)


def test_stored_costs_of_older_versions_load_and_wrong_ones_do_not() -> None:
    cost = TransferCost(0.001, 0.03, launch_ms=0.002, contention=Contention(Side(0.1, 0.2), bandwidth=3.0))
    assert msgspec.json.decode(msgspec.json.encode(cost), type=TransferCost) == cost
    assert msgspec.json.decode('{"wait_cpu_ms": 0.01}', type=TransferCost) == TransferCost(0.01)
    for wrong in ("", "{", '{"wait_cpu_ms": -1}', '{"unknown": 1}', '{"wait_cpu_ms": null}'):
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(wrong, type=TransferCost)


def test_moves_cost_by_direction_and_those_of_older_versions_either_way() -> None:
    cost = TransferCost(0.0, 0.0, to_cpu_ms_per_mb=1.0, to_gpu_ms_per_mb=3.0, join_ms_per_mb=0.0)
    assert cost.move_ms(2e6, 1e6) == pytest.approx(5.0)
    assert cost.bytes_ms(np.array([2e6]), np.array([1e6]), NONE) == pytest.approx(5.0)
    older = TransferCost(0.0, 0.0, copy_ms_per_mb=2.0)
    assert older.move_ms(1e6, 0.0) == older.move_ms(0.0, 1e6) == pytest.approx(2.0)
    told = older.by_direction()
    assert (told.copy_ms_per_mb, told.to_cpu_ms_per_mb, told.to_gpu_ms_per_mb) == (0.0, 2.0, 2.0)
    assert told.by_direction() == told
