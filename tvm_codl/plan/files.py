"""Plans as files: strict, indented JSON."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from tvm_codl.errors import UserError
from tvm_codl.plan.plan import FORMAT, Placement, Plan, PlannedOperator
from tvm_codl.records.settings import Settings

_ANEW = "mend it there, or make a plan: tvm-codl plan MODEL -o PLAN"
_NESTED: dict[type[msgspec.Struct], dict[str, type[msgspec.Struct]]] = {
    Plan: {"operators": PlannedOperator, "settings": Settings},
    PlannedOperator: {"placement": Placement},
}
_AT_BYTE = re.compile(r"\(byte (\d+)\)")


def plan_json(plan: Plan) -> str:
    return msgspec.json.format(msgspec.json.encode(plan), indent=2).decode() + "\n"


def dump_plan(plan: Plan, path: str | Path) -> None:
    Path(path).write_text(plan_json(plan), encoding="utf-8")


def load_plan(path: str | Path) -> Plan:
    """Raises :class:`UserError` that names the line or the operator that is wrong."""
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
    """As :func:`load_plan`, from the text; unknown fields are errors, so that a typo is seen."""
    raw = text.encode() if isinstance(text, str) else text
    try:
        raw.decode("utf-8")
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{source} is no JSON", _line_of_byte(raw, str(error)), _ANEW) from error
    format = value.get("format", FORMAT) if isinstance(value, dict) else FORMAT
    if format != FORMAT:
        raise UserError(
            f"{source} has plan format {format!r}, this version reads {FORMAT}",
            next="make it again: tvm-codl plan MODEL",
        )
    _check_fields(value, Plan, source)
    try:
        plan = msgspec.convert(value, Plan)
    except msgspec.ValidationError as error:
        raise UserError(f"{source} is no plan", str(error), _ANEW) from error
    # Lines may be moved by hand; readers expect the graph's order.
    return msgspec.structs.replace(plan, operators=tuple(sorted(plan.operators, key=lambda line: line.operator)))


def _check_fields(value: object, kind: type[msgspec.Struct], source: str, where: str = "") -> None:
    """Unknown fields are errors in a file that a person edits; elsewhere the types accept those of later formats."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            _check_fields(item, kind, source, f"{where}[{index}]")
    if not isinstance(value, dict):
        return
    unknown = sorted(set(value) - set(kind.__struct_fields__))
    if unknown:
        raise UserError(
            f"{source} has an unknown field {unknown[0]!r}" + (f" in {where}" if where else ""),
            f"known fields: {', '.join(kind.__struct_fields__)}",
            "correct or remove the field, then: tvm-codl plans verify MODEL PLAN",
        )
    for name, inner in _NESTED.get(kind, {}).items():
        path = f"{where}.{name} of {value.get('name', '?')!r}" if where else name
        _check_fields(value.get(name), inner, source, path)


def _line_of_byte(raw: bytes, message: str) -> str:
    match = _AT_BYTE.search(message)
    if not match:
        return message
    before = raw[: int(match.group(1))]
    number = before.count(b"\n") + 1
    lines = raw.splitlines() or [b""]
    line = lines[min(number, len(lines)) - 1].decode("utf-8", "replace").strip()
    return f"line {number}: {line[:100]!r}: {message}"
