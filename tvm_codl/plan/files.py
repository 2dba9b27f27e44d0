"""Plans as files: strict JSON, laid out for a person's eyes."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from tvm_codl.errors import UserError
from tvm_codl.plan.plan import FORMAT, Placement, Plan, PlannedOperator
from tvm_codl.records.settings import Settings

#: What helps against a file that is no plan, or no longer one.
_ANEW = "mend it there, or make a plan: tvm-codl plan MODEL -o PLAN"
_AT_BYTE = re.compile(r"\(byte (\d+)\)")


def plan_json(plan: Plan) -> str:
    return msgspec.json.format(msgspec.json.encode(plan), indent=2).decode() + "\n"


def dump_plan(plan: Plan, path: str | Path) -> None:
    Path(path).write_text(plan_json(plan), encoding="utf-8")


def load_plan(path: str | Path) -> Plan:
    """Raises :class:`UserError` that names the line, or the operator, that is no plan."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise UserError(
            f"the plan {path} cannot be read",
            error.strerror or str(error),
            "name cpu-only, gpu-only or a plan file; this makes one: tvm-codl plan MODEL -o PLAN",
        ) from error
    return parse_plan(text, str(path))


def parse_plan(text: bytes | str, source: str = "plan") -> Plan:
    """As :func:`load_plan`, from the text; fields that a plan does not have are errors, so that a typo is seen."""
    raw = text.encode() if isinstance(text, str) else text
    try:
        raw.decode("utf-8")
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{source} is no JSON", _line_of_byte(raw, str(error)), _ANEW) from error
    found = value.get("format", FORMAT) if isinstance(value, dict) else None
    if found is not None and found != FORMAT:
        raise UserError(
            f"{source} has plan format {found!r}, this version reads {FORMAT}",
            next="make it again: tvm-codl plan MODEL",
        )
    _known(value, Plan, source, "")
    try:
        plan = msgspec.convert(value, Plan)
    except msgspec.ValidationError as error:
        raise UserError(f"{source} is no plan", str(error), _ANEW) from error
    # Whoever edits a plan may move its lines; what reads it takes them in the graph's order.
    return msgspec.structs.replace(plan, operators=tuple(sorted(plan.operators, key=lambda line: line.operator)))


def _known(value: object, kind: type[msgspec.Struct], source: str, where: str) -> None:
    """Plan's own types accept unknown fields (later formats may add some); a file that a person edits does not."""
    if not isinstance(value, dict):
        return
    unknown = sorted(set(value) - set(kind.__struct_fields__))
    if unknown:
        raise UserError(
            f"{source} has an unknown field {unknown[0]!r}" + (f" in {where}" if where else ""),
            f"known fields: {', '.join(kind.__struct_fields__)}",
            "correct or remove the field, then: tvm-codl plans verify MODEL PLAN",
        )
    if kind is Plan and isinstance(value.get("operators"), list):
        for index, operator in enumerate(value["operators"]):
            _known(operator, PlannedOperator, source, f"operators[{index}]")
    if kind is Plan:
        _known(value.get("settings"), Settings, source, "settings")
    if kind is PlannedOperator:
        _known(value.get("placement"), Placement, source, f"{where}.placement of {value.get('name', '?')!r}")


def _line_of_byte(raw: bytes, message: str) -> str:
    match = _AT_BYTE.search(message)
    if not match:
        return message
    before = raw[: int(match.group(1))]
    number = before.count(b"\n") + 1
    lines = raw.splitlines() or [b""]
    line = lines[min(number, len(lines)) - 1].decode("utf-8", "replace").strip()
    return f"line {number}: {line[:100]!r}: {message}"
