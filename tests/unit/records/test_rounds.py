from __future__ import annotations

from pathlib import Path

from tvm_codl.records.rounds import Round, load_rounds, save_rounds

FIRST, SECOND = Round(0, 9.0, 0.0, 0, 40, 1.0), Round(1, 8.0, 0.5, 3, 72, 0.1)


def test_the_last_search_that_measured_is_kept(tmp_path: Path) -> None:
    store = tmp_path / "records.sqlite"
    assert load_rounds(store, "phone", "build", "graph") == ()
    save_rounds(store, "phone", "build", "graph", [replanned := Round(0, 8.5, 0.0, 0, 0, 0.0)])
    assert load_rounds(store, "phone", "build", "graph") == (replanned,)
    save_rounds(store, "phone", "build", "graph", [FIRST])
    save_rounds(store, "phone", "build", "graph", [FIRST, SECOND])
    save_rounds(store, "phone", "build", "graph", [replanned])
    save_rounds(store, "phone", "build", "another", [FIRST])
    assert load_rounds(store, "phone", "build", "graph") == (FIRST, SECOND)
    assert load_rounds(store, "phone", "other build", "graph") == ()
