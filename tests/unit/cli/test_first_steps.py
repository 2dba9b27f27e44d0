"""What a user sees who types ``tvm-codl`` alone, and what the shell completes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from tvm_codl.cli.main import COMMANDS, cli, run


def test_alone_it_shows_three_commands_with_examples_that_parse(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "tvm-codl --help" in err
    assert all(len(line) <= 80 for line in err.splitlines())
    examples = [shlex.split(line)[1:] for line in err.splitlines() if line.startswith("         tvm-codl ")]
    assert [name for name, *_ in examples] == ["bench", "plan", "run"]
    for name, *arguments in examples:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.make_context(name, arguments).params["source"].startswith("zoo:")


def test_other_groups_alone_show_their_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["records"]) == 2
    assert "export" in capsys.readouterr().err


def completed(*words: str) -> list[tuple[str, str]]:
    """Type and value of what is proposed for the last of ``words``."""
    found = ShellComplete(cli, {}, "tvm-codl", "_TVM_CODL_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return [(item.type, item.value) for item in found]


def test_commands_and_options_are_completed() -> None:
    assert completed("") == [("plain", name) for name in COMMANDS]
    assert completed("bench", "--lo") == [("plain", "--local")]
    assert completed("records", "ex") == [("plain", "export")]


@pytest.mark.parametrize(
    "words", [("bench",), ("build",), ("check",), ("measure",), ("plan",), ("rank", "a.onnx"), ("run",), ("tune",),
              ("plans", "diff", "a.json", "b.json"), ("plans", "verify")],
)  # fmt: skip
def test_a_model_is_completed_as_a_file(words: tuple[str, ...]) -> None:
    assert completed(*words, "my") == [("file", "my")]


@pytest.mark.parametrize(("line", "expected"), [("tvm-codl b", "plain,bench"), ("tvm-codl bench m", "file,m")])
def test_the_shell_is_answered_without_tvm(line: str, expected: str) -> None:
    """A key press must not wait for seconds, nor fail where TVM is missing."""
    script = (
        "import sys; sys.modules['tvm'] = None; sys.argv[0] = 'tvm-codl'; from tvm_codl.cli.main import main; main()"
    )
    asked = {"_TVM_CODL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, **asked}, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert expected in done.stdout.splitlines()
