"""The table of supported operators is the loader's own, and the docs have it."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.frontend.onnx_models import save
from tvm_codl.errors import UserError
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.onnx_refusals import REFUSALS
from tvm_codl.frontend.onnx_repairs import REPAIRS
from tvm_codl.frontend.support_table import as_markdown, support_table

ROWS = {row.operator: row for row in support_table()}
PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


def test_the_page_is_current() -> None:
    """Written by ``python -m tvm_codl.frontend.support_table > docs/operators.md``."""
    assert PAGE.read_text(encoding="utf-8") == "\n".join(as_markdown()) + "\n"


def test_every_table_of_the_loader_is_in_it() -> None:
    assert {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""} <= ROWS.keys()
    assert REFUSALS.keys() | REPAIRS.keys() <= ROWS.keys()
    assert {name for name, refusal in REFUSALS.items() if refusal.always} <= {
        name for name, row in ROWS.items() if row.support == "refused"
    }


@pytest.mark.parametrize("operator", ["Det", "NonZero", "RandomNormalLike"])
def test_what_is_refused_in_it_is_refused_at_load(operator: str, tmp_path: Path) -> None:
    assert ROWS[operator].support == "refused" and ROWS[operator].remarks
    nodes = [
        helper.make_node(operator, ["x"], ["a"]),
        helper.make_node("Cast", ["a"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    with pytest.raises(UserError):
        load_model(str(save(tmp_path / "m.onnx", nodes, [2, 2], [], opset=13)))


def test_what_it_calls_a_function_loads(tmp_path: Path) -> None:
    assert (
        ROWS["Gelu"].support == "function" and ROWS["Dropout"].support == "rewritten" and ROWS["Relu"].support == "yes"
    )
    path = save(tmp_path / "m.onnx", [helper.make_node("Gelu", ["x"], ["y"])], [2, 2], [2, 2], opset=20)
    assert load_model(str(path)).outputs == ("y",)
