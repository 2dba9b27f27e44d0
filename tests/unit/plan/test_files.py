from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.errors import UserError
from tvm_codl.plan.files import dump_plan, load_plan, parse_plan, plan_json
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator

placements = st.one_of(
    st.sampled_from([Placement("cpu"), Placement("gpu")]),
    st.builds(Placement, st.just("split"), st.sampled_from(["height", "channels"]), st.integers(1, 4096)),
    st.builds(
        Placement,
        st.just("split"),
        st.just("height"),
        st.integers(1, 4096),
        st.tuples(st.integers(0, 2), st.integers(0, 2)),
    ),
)
times = st.floats(0, 1e6)
operators = st.builds(
    PlannedOperator, st.integers(0, 500), st.text(), placements, times, times, times, times, st.integers(-1, 50)
)
lines = st.lists(operators, max_size=5).map(lambda found: tuple(sorted(found, key=lambda one: one.operator)))
plans = st.builds(Plan, st.text(), st.text(), lines, times)


@given(plans)
def test_a_plan_is_the_same_after_a_round_trip(plan: Plan) -> None:
    assert parse_plan(plan_json(plan)) == plan


def test_a_file_is_laid_out_for_people_and_read_back(tmp_path: Path) -> None:
    plan = Plan("net", "phone", (PlannedOperator(0, "conv2d_1", Placement("split", "height", 9)),), 1.5)
    dump_plan(plan, tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    assert '"axis": "height"' in text and text.count("\n") > 5 and text.endswith("\n")
    assert load_plan(tmp_path / "plan.json") == plan


def test_lines_that_were_moved_are_read_in_the_graphs_order() -> None:
    lines = tuple(PlannedOperator(i, f"conv2d_{i}", Placement("gpu" if i % 3 else "cpu")) for i in range(12))
    moved = (*lines[7:], *reversed(lines[:7]))
    assert parse_plan(plan_json(Plan("net", "phone", moved))) == Plan("net", "phone", lines)


def test_an_overlap_is_in_the_file_where_there_is_one() -> None:
    def text(placement: Placement) -> str:
        return plan_json(Plan("net", "phone", (PlannedOperator(0, "c", placement),)))

    assert '"over": [' in text(Placement("split", "height", 9, (1, 0)))
    assert "over" not in text(Placement("split", "height", 9))
    zero = parse_plan(text(Placement("split", "height", 9, (1, 0))).replace("1,", "0,", 1)).operators[0].placement
    assert zero == Placement("split", "height", 9) and "over" not in text(zero)


GOOD = '{"model": "m", "device": "d", "operators": [%s], "format": 1}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"model": "m",\n "device": "d"\n "operators": []}', ["no JSON", "line 3"]),
        ("", ["no JSON"]),
        (b"\xff\xfe\x00", ["no JSON"]),
        ("[]", ["no plan", "object"]),
        ('{"model": "m", "device": "d"}', ["no plan", "operators"]),
        ('{"model": "m", "device": "d", "operators": [], "format": 2}', ["format 2"]),
        ('{"model": "m", "device": "d", "operators": [], "extra": 2}', ["unknown field 'extra'", "predicted_ms"]),
        (
            GOOD % '{"operator": 0, "name": "c", "placement": {"on": "split", "axes": "height", "at": 2}}',
            ["unknown field 'axes'", "operators[0]", "'c'"],
        ),
        (GOOD % '{"operator": 0, "name": "c", "placement": {"on": "npu"}}', ["npu", "operators[0].placement.on"]),
        (GOOD % '{"operator": 0, "name": "c", "placement": {"on": "cpu", "at": 1.5}}', ["operators[0].placement.at"]),
        (
            GOOD % '{"operator": 0, "name": "c", "placement": {"on": "split", "axis": "height", "at": 2, "over": [1]}}',
            ["operators[0].placement.over"],
        ),
        (GOOD % '{"operator": "0", "name": "c", "placement": {"on": "cpu"}}', ["operators[0].operator"]),
        (GOOD % "3", ["operators[0]"]),
    ],
)
def test_what_is_no_plan_is_refused_with_the_place(text: str | bytes, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as error:
        load_plan(path)
    for word in ["plan.json", *words]:
        assert word in str(error.value)
    assert "tvm-codl plan" in error.value.next


def test_a_missing_file_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.json cannot be read") as error:
        load_plan(tmp_path / "nothing.json")
    assert "tvm-codl plan MODEL -o PLAN" in error.value.next


@given(st.binary(max_size=200))
def test_no_text_is_more_than_a_user_error(text: bytes) -> None:
    with pytest.raises(UserError):
        parse_plan(text)
