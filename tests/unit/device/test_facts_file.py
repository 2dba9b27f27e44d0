"""YAML that a person writes becomes a typed value, or an error that names the place."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.device.facts_file import parse_facts, read_facts
from tvm_codl.errors import UserError


class Facts(msgspec.Struct, forbid_unknown_fields=True):
    cores: int = 0
    inner: dict[str, int] = {}


@pytest.mark.parametrize(
    "text", ["cores: 3\ninner: {a: 1}\n", '{"cores": 3, "inner": {"a": 1}}', "\ufeffcores: 3\ninner:\n  a: 1"]
)
def test_yaml_and_json_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "facts.yaml").write_text(text, encoding="utf-8")
    assert read_facts(tmp_path / "facts.yaml", Facts, "") == Facts(3, {"a": 1})


@pytest.mark.parametrize(
    ("text", "evidence"),
    [("inner: {a: 1, a: 2}", "line 1"), ("cores: 1\ncores: 2", "line 2"), ("cores: x", "cores"), ("teeth: 32", "teeth"), ("a: b: c", "line 1")],
)  # fmt: skip
def test_a_mistake_is_shown_with_its_place(text: str, evidence: str) -> None:
    with pytest.raises(UserError) as error:
        parse_facts(text, Facts, "facts.yaml", "write cores")
    assert evidence in error.value.evidence and error.value.next == "write cores" and "facts.yaml" in error.value.what


@given(st.text(max_size=60))
def test_any_text_is_facts_or_a_user_error(text: str) -> None:
    try:
        assert isinstance(parse_facts(text, Facts, "text", ""), Facts)
    except UserError:
        pass
