"""Whether a plan is legal for a graph; a plan may come from anywhere, the search and a text editor included."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from msgspec.structs import replace

from tvm_codl.errors import UserError
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.graph.split import Axis, NoSplit, piece
from tvm_codl.plan.candidates import Axes, legal_cuts
from tvm_codl.plan.plan import FORMAT, Placement, Plan, PlannedOperator

_ANEW = "make a new one: tvm-codl plan MODEL -o plan.json"
_EDIT = f"change its placement in the plan, or {_ANEW}"
#: Cuts that are offered in place of one that cannot be made.
_OFFERED = 6


def verify_plan(plan: Plan, graph: OpGraph, axes: Axes) -> None:
    """Raise :class:`UserError` for the first operator that cannot be where the plan has it.

    ``axes`` maps an operator's id to its legal axes by name; an operator that is missing there has none.
    The message names the operator and the reason, and lists the legal choices.
    """
    if plan.format != FORMAT:
        raise UserError(f"the plan has format {plan.format}, this version reads {FORMAT}", next=_ANEW)
    operators = {operator.id: operator for operator in graph.operators}
    seen: set[int] = set()
    for planned in plan.operators:
        if planned.operator not in operators:
            raise UserError(
                f"the plan places operator {planned.operator} ({planned.name!r}), which the network does not have",
                f"the network has {len(operators)} operators, with ids {_ids(operators)}",
                "was the plan made for another model? tvm-codl plan MODEL makes a new one",
            )
        operator = operators[planned.operator]
        if planned.name != operator.name:
            raise UserError(
                f"the plan calls operator {planned.operator} {planned.name!r}; in the network it is {operator.name!r}",
                next="was the plan made for another model? tvm-codl plan MODEL makes a new one",
            )
        if planned.operator in seen:
            raise UserError(f"the plan places {_title(planned)} twice", next="leave one of the two entries")
        seen.add(planned.operator)
        _verify_placement(planned, axes.get(planned.operator, {}))
        if planned.placement.on == "split":
            _verify_pieces(planned, operator, graph, axes[planned.operator][planned.placement.axis])
    missing = [f"{id} ({operator.name})" for id, operator in operators.items() if id not in seen]
    if missing:
        raise UserError(
            f"the plan places {len(seen)} of the network's {len(operators)} operators",
            f"missing: {', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}",
            _ANEW,
        )


def _verify_placement(planned: PlannedOperator, axes: Mapping[str, Axis]) -> None:
    if fault := _placement_fault(planned.placement, axes):
        splits = [_choices(axis) for axis in axes.values() if axis.granule < axis.extent]
        raise UserError(f"{_title(planned)}{fault}", f"legal placements: {'; '.join(['cpu', 'gpu', *splits])}", _EDIT)
    if planned.placement.on == "split":
        _verify_overlap(planned, axes[planned.placement.axis])


def _placement_fault(placement: Placement, axes: Mapping[str, Axis]) -> str:
    """What is wrong with a placement, overlaps aside; empty for nothing."""
    on, at, axis = placement.on, placement.at, axes.get(placement.axis)
    if on not in ("cpu", "gpu", "split"):
        return f" is placed on {on!r}"
    if on != "split":
        more = placement.axis or at or any(placement.over)
        return f" is placed whole on the {on}, yet has an axis, a cut or an overlap: remove them" if more else ""
    if not axes:
        return " cannot be split: it has no split rule"
    if axis is None:
        return f" cannot be split along {placement.axis!r}"
    if not 1 <= at <= axis.extent - 1:
        return f": cut {at} is outside 1..{axis.extent - 1} of {axis.name}"
    if at % axis.granule:
        return f": cut {at} of {axis.name} is not a multiple of {axis.granule}"
    return ""


def _verify_overlap(planned: PlannedOperator, axis: Axis) -> None:
    """Each part is more than nothing and less than the whole, overlap included."""
    at, over = planned.placement.at, planned.placement.over
    (_, end), (start, _) = planned.placement.parts(axis.extent)
    if min(over) < 0 or end >= axis.extent or start <= 0:
        fault = f"its parts cannot overlap by {list(over)} of {axis.name}"
    elif over[0] % axis.granule or over[1] % axis.granule:
        fault = f"an overlap of {list(over)} of {axis.name} is not in multiples of {axis.granule}"
    else:
        return
    most = (axis.extent - 1) // axis.granule * axis.granule - at, at - axis.granule
    legal = f"legal overlaps of a cut of {axis.name} at {at}: 0..{most[0]} units behind it for the cpu, 0..{most[1]} before it"
    raise UserError(f"{_title(planned)}: {fault}", f"{legal} for the gpu{_steps(axis)}", _EDIT)


def _verify_pieces(planned: PlannedOperator, operator: Operator, graph: OpGraph, axis: Axis) -> None:
    """Some cuts inside a legal axis are none, e.g. where a piece would read nothing but padding."""
    placement = planned.placement
    why = _no_split(placement, operator, graph, axis)
    if why:
        others = [replace(placement, at=at) for at in legal_cuts(axis)]
        nearest = sorted(others, key=lambda other: (abs(other.at - placement.at), other.at))
        cuts = list(islice((near.at for near in nearest if not _no_split(near, operator, graph, axis)), _OFFERED))
        legal = "; ".join(["cpu", "gpu", *(f"split {axis.name} at {at}" for at in sorted(cuts))])
        raise UserError(
            f"{_title(planned)} cannot be split at {placement.at} of its {axis.name}: {why}",
            f"legal placements, the nearest cuts among them: {legal}",
            _EDIT,
        )


def _no_split(placement: Placement, operator: Operator, graph: OpGraph, axis: Axis) -> str:
    """Why one of the two pieces cannot be made; empty where both can."""
    try:
        for lo, hi in placement.parts(axis.extent):
            piece(operator, graph, axis.name, lo, hi)
    except NoSplit as error:
        return str(error) or "a piece of it cannot be made"
    return ""


def _choices(axis: Axis) -> str:
    return f"split {axis.name} at {axis.granule}..{(axis.extent - 1) // axis.granule * axis.granule}{_steps(axis)}"


def _steps(axis: Axis) -> str:
    return f", in steps of {axis.granule}" if axis.granule > 1 else ""


def _title(planned: PlannedOperator) -> str:
    return f"operator {planned.operator} ({planned.name})"


def _ids(operators: Mapping[int, Operator]) -> str:
    return f"{min(operators)}..{max(operators)}" if operators else "none"
