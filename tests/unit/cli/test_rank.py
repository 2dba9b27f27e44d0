from __future__ import annotations

import pytest

from tvm_codl.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rank"], "Missing argument"),
        (["rank", "zoo:small", "zoo:small"], "zoo:small is named twice"),
        (["rank", "zoo:small", "--top", "-1"], "--top"),
        (["rank", "zoo:small", "--local", "--rpc-tracker", "a:1"], "--local excludes"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err
