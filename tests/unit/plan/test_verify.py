from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit.plan.networks import Network
from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.graph.split import Axis, NoSplit
from tvm_codl.plan import verify
from tvm_codl.plan.plan import Placement, Plan, uniform_plan
from tvm_codl.plan.verify import verify_plan


def network() -> OpGraph:
    made = Network(1, 8, 8, 16)
    made.opaque(made.conv(0, 16, name="first"))
    return made.graph()


AXES = {0: {"height": Axis("height", 1, 8, 1), "channels": Axis("channels", 3, 16, 4)}}


def placed(*placements: Placement) -> Plan:
    plan = uniform_plan(network(), "cpu")
    return replace(
        plan,
        operators=tuple(
            replace(o, placement=p) for o, p in zip(plan.operators, placements or (Placement("cpu"),) * 2, strict=False)
        ),
    )


@pytest.mark.parametrize(
    "placement",
    [
        Placement("gpu"),
        Placement("split", "height", 1),
        Placement("split", "channels", 12),
        Placement("split", "height", 4, (3, 3)),
        Placement("split", "channels", 8, (4, 0)),
    ],
)
def test_a_legal_plan_passes(placement: Placement) -> None:
    verify_plan(placed(placement, Placement("gpu")), network(), AXES)


@pytest.mark.parametrize(
    ("placements", "words"),
    [
        ([Placement("split", "width", 2), Placement("cpu")], ["operator 0 (first)", "'width'", "split height at 1..7"]),
        ([Placement("split", "height", 8), Placement("cpu")], ["operator 0 (first)", "outside 1..7"]),
        ([Placement("split", "height", 0), Placement("cpu")], ["outside 1..7"]),
        ([Placement("split", "height", -3), Placement("cpu")], ["outside 1..7"]),
        ([Placement("split", "channels", 6), Placement("cpu")], ["multiple of 4", "split channels at 4..12, in steps"]),
        ([Placement("cpu"), Placement("split", "height", 2)], ["operator 1", "no split rule", "placements: cpu; gpu"]),
        ([Placement("npu"), Placement("cpu")], ["operator 0 (first)", "'npu'"]),  # type: ignore[arg-type]
        ([Placement("cpu", "height", 3), Placement("cpu")], ["whole on the cpu", "has an axis"]),
        ([Placement("gpu", over=(1, 0)), Placement("cpu")], ["whole on the gpu", "an overlap"]),
        (
            [Placement("split", "height", 4, (4, 0)), Placement("cpu")],
            ["operator 0 (first)", "cannot overlap by [4, 0]", "0..3 units behind it for the cpu, 0..3 before it"],
        ),
        ([Placement("split", "height", 3, (0, 3)), Placement("cpu")], ["cannot overlap by [0, 3]", "0..2 before it"]),
        ([Placement("split", "height", 4, (-1, 0)), Placement("cpu")], ["cannot overlap by [-1, 0]"]),
        (
            [Placement("split", "channels", 8, (2, 4)), Placement("cpu")],
            ["[2, 4] of channels is not in multiples of 4", "in steps of 4"],
        ),
        ([Placement("cpu")], ["1 of the network's 2 operators", "missing: 1"]),
    ],
)
def test_an_illegal_plan_names_the_operator_the_reason_and_the_choices(
    placements: list[Placement], words: list[str]
) -> None:
    with pytest.raises(UserError) as error:
        verify_plan(placed(*placements), network(), AXES)
    for word in words:
        assert word in str(error.value)


def test_a_cut_of_which_a_piece_cannot_be_made_is_refused_with_the_nearest_that_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_rows(operator: Operator, graph: OpGraph, axis: str, lo: int, hi: int) -> None:
        if axis == "height" and hi <= 3:
            raise NoSplit("the piece would read nothing but padding")

    monkeypatch.setattr(verify, "piece", no_rows)
    verify_plan(placed(Placement("split", "height", 4), Placement("cpu")), network(), AXES)
    with pytest.raises(UserError) as error:
        verify_plan(placed(Placement("split", "height", 2), Placement("cpu")), network(), AXES)
    for words in (
        "operator 0 (first) cannot be split at 2 of its height: the piece would read nothing but padding",
        "cpu; gpu; split height at 4; split height at 5; split height at 6; split height at 7",
    ):
        assert words in str(error.value)


def test_unknown_renamed_and_repeated_operators_are_refused() -> None:
    plan = placed()
    first, second = plan.operators
    for operators, words in (
        ((first, replace(second, operator=7)), "operator 7"),
        ((replace(first, name="other"), second), "'other'"),
        ((first, second, first), "twice"),
    ):
        with pytest.raises(UserError, match=words):
            verify_plan(replace(plan, operators=operators), network(), AXES)
    with pytest.raises(UserError, match="format 9"):
        verify_plan(replace(plan, format=9), network(), AXES)
