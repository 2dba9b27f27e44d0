"""Whole plans in a store: what goes in comes out, through every way, once, and nothing that is no plan goes in."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.examples import examples
from tests.unit.records import strategies
from tests.unit.records.test_store import kernel, record
from tvm_codl.errors import UserError
from tvm_codl.records.exchange import Amount, export_file, import_file, merge
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.selection import Selection, groups
from tvm_codl.records.store import RecordStore

PLACES = '[{"on": "cpu"}, {"on": "split", "axis": "height", "at": 3}]'
PLAN = PlanRecord("net", "phone", "b1", "0" * 16, PLACES, 2.0, (2.5, 2.25, 9.0), 1700000000.25)


@pytest.mark.parametrize(
    "wrong",
    [
        {"placements": "nonsense"},
        {"placements": "{}"},
        {"placements": "[]"},
        {"placements": '[{"at": 3}]'},
        {"placements": "[3]"},
        {"settings": "[]"},
        {"settings": ""},
        {"times_ms": ()},
        {"times_ms": (1.0, float("nan"))},
        {"times_ms": (-1.0,)},
        {"predicted_ms": float("inf")},
        {"when": -1.0},
        {"graph": ""},
    ],
)
def test_what_is_no_plan_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        replace(PLAN, **wrong)


def test_equal_plans_have_equal_texts() -> None:
    other = replace(
        PLAN, placements=PLACES.replace(" ", "").replace('"axis":"height","at":3', '"at":3,"axis":"height"')
    )
    assert other == PLAN
    assert PLAN.median_ms == 2.5


def test_a_store_keeps_plans_and_finds_them(tmp_path: Path) -> None:
    other = replace(PLAN, model="other", graph="1" * 16, build="b2", settings='{"flush_every": 4}')
    with RecordStore(tmp_path / "a.db") as store:
        assert store.add([PLAN, other, PLAN]) == 3
        assert store.add_new([PLAN, replace(PLAN, when=5.0)]) == 1
    with RecordStore(tmp_path / "a.db") as store:
        assert list(store.plans()) == [PLAN, other, PLAN, replace(PLAN, when=5.0)]
        assert list(store.plans(graph="1" * 16)) == list(store.plans(build="b2")) == [other]
        assert list(store.plans(device="nobody")) == []
        assert len(store) == 0, "a plan is no piece"


def test_the_table_is_append_only(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "a.db") as store:
        store.add([PLAN])
    connection = sqlite3.connect(tmp_path / "a.db")
    for statement in ("DELETE FROM plan", "UPDATE plan SET model='x'"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()


def test_plans_are_merged_exported_and_imported_once(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "a.db") as store:
        store.add([PLAN])
        store.add([record()])
        store.add([kernel()])
        assert export_file(store, tmp_path / "out.log") == Amount(1, 1, 0, 1)
        assert export_file(store, tmp_path / "out.csv") == Amount(1)
    with RecordStore(tmp_path / "b.db") as store:
        assert merge([tmp_path / "a.db"], store) == Amount(1, 1, 0, 1)
        assert merge([tmp_path / "a.db"], store) == Amount()
        found = import_file(store, tmp_path / "out.log", skip_bad=True)
        assert (found.read.plans, found.new) == (1, Amount())
        assert list(store.plans()) == [PLAN]


@settings(max_examples=examples(10))
@given(made=st.lists(strategies.plans, max_size=4, unique=True))
def test_any_plans_go_through_a_file(made: list[PlanRecord], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("any")
    with RecordStore(folder / "a.db") as store:
        store.add(made)
        export_file(store, folder / "out.log")
    with RecordStore(folder / "b.db") as store:
        assert import_file(store, folder / "out.log").new == Amount(plans=len(made))
        assert list(store.plans()) == made


def test_a_bad_plan_stops_an_import(tmp_path: Path) -> None:
    (tmp_path / "bad.log").write_text('#codl.plan {"model": "net"}\n')
    with RecordStore(tmp_path / "a.db") as store, pytest.raises(UserError, match=r"bad\.log:1 is no record"):
        import_file(store, tmp_path / "bad.log")


def test_plans_are_selected_by_device_and_model_and_counted(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "a.db") as store:
        store.add([PLAN, replace(PLAN, build="b2"), replace(PLAN, model="other", when=1800000000.0)])
        assert [(g.what, g.processor, g.kind, g.count, g.builds) for g in groups(store)] == [
            ("plan", "both", "net", 2, 2),
            ("plan", "both", "other", 1, 1),
        ]
        for selection, count in {
            Selection(kind="net"): 2,
            Selection(device="phone"): 3,
            Selection(device="nobody"): 0,
            Selection(mode="alone"): 0,
            Selection(processor="cpu"): 0,
        }.items():
            assert len(list(selection.plans(store))) == count
