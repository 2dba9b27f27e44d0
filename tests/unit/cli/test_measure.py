"""The words of ``tvm-codl measure``: what it takes for a budget, and what excludes what."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvm_codl.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "soon"], "'soon' is no budget"),
        (["--budget", "0"], "'0' is no budget"),
        (["--grid", "-o", "plan.json"], "--grid makes no plan"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["measure", "zoo:small", "--records", str(tmp_path / "r.sqlite"), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err
    assert not list(tmp_path.iterdir())
