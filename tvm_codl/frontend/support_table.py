"""What of ONNX can run, operator by operator, from the tables by which the loader rewrites and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import onnx

from tvm_codl.frontend.onnx_functions import OTHERWISE, known_operators
from tvm_codl.frontend.onnx_import import CONVERTERS
from tvm_codl.frontend.onnx_quantised import QUANTISED
from tvm_codl.frontend.onnx_refusals import REFUSALS
from tvm_codl.frontend.onnx_repairs import IDLE, REPAIRS, WINDOWS
from tvm_codl.frontend.onnx_support import TYPES, UNKNOWN

HEAD = """\
# ONNX operators

From the tables by which models are loaded: `tvm-codl check --list` prints it, and `python -m tvm_codl.frontend.support_table >
docs/operators.md` writes this page. *Rewritten*: to other operators of the same meaning, or by a converter of ours, for all of its
uses or some. *Function*: as the operators by which ONNX defines it. What is constant, shapes included, is computed as the model is
loaded, and anything may be constant. A use that is refused is named with its place in the file before anything is measured.
"""


class Row(msgspec.Struct, frozen=True):
    """``since`` is the first operator set that has the operator; ``remarks`` says which uses are refused, and why."""

    operator: str
    since: int
    support: Literal["yes", "rewritten", "function", "refused"]
    remarks: str = ""


def support_table() -> list[Row]:
    """ONNX's own operators in the order of their names."""
    newest = onnx.defs.onnx_opset_version()
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            first[schema.name] = min(schema.since_version, first.get(schema.name, newest))
    return [_row(name, since, newest) for name, since in sorted(first.items())]


def types() -> tuple[str, ...]:
    """The element types of tensors."""
    return tuple(name.lower() for name in TYPES)


def as_markdown() -> Iterator[str]:
    """The lines of ``docs/operators.md``."""
    yield HEAD
    yield f"Tensors hold {', '.join(types())}. ONNX {onnx.defs.onnx_opset_version()} is the newest operator set here.\n"
    yield "| Operator | Since | Support | Refused, or from where on |"
    yield "|---|---|---|---|"
    for row in support_table():
        yield f"| {row.operator} | {row.since} | {row.support} | {row.remarks} |"


def _row(name: str, since: int, newest: int) -> Row:
    refusal = REFUSALS.get(name)
    if refusal is not None and refusal.always:
        return Row(name, since, "refused", refusal.of)
    remarks = refusal.of if refusal is not None else ""
    if name in OTHERWISE or name not in known_operators(newest):
        written_out = _function_since(name, newest)
        if written_out is None:
            return Row(name, since, "refused", UNKNOWN)
        return Row(name, since, "function", remarks or (f"operator set {written_out}" if written_out > since else ""))
    ours = any(name in table for table in (REPAIRS, CONVERTERS, QUANTISED, WINDOWS, IDLE))
    return Row(name, since, "rewritten" if ours else "yes", remarks)


def _function_since(name: str, newest: int) -> int | None:
    schema: Any = onnx.defs.get_schema(name, newest)  # the stubs lack what follows
    versions = [*schema.function_opset_versions, *schema.context_dependent_function_opset_versions]
    return min(versions, default=None)


if __name__ == "__main__":
    print("\n".join(as_markdown()))
