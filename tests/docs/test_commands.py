"""The commands and the Python in the pages are right: all are parsed, those of two pages run."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks
from tvm_codl.cli.main import cli
from tvm_codl.plan.files import parse_plan

#: How lines begin that are not looked at, and why.
OTHERS = {
    "sudo apt-get install ": "needs root",
    "adb ": "Android's own tool",
    "export ANDROID_NDK_HOME=": "sets a variable",
    ". .venv/bin/activate": "what make install made",
    "eval ": "the shell's own",
    "_TVM_CODL_COMPLETE=": "fish's own",
    "PACKAGES=$(python ": "runs with its page",
    "cp $PACKAGES/": "runs with its page",
}
LINES = sorted({(block.page, line) for block in blocks("", "bash") for line in block.lines})
#: These pages need no phone; their blocks run in order.
RUN = ("first-ten-minutes.md", "own-model.md")
LIMIT_S = 1200.0


@pytest.mark.parametrize(("page", "line"), LINES)
def test_commands_are_right(page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if line.startswith(tuple(OTHERS)):
        return
    monkeypatch.chdir(tmp_path)
    for part in re.split(r"&&|&\s*$", re.sub(r"\s#\s.*", "", line)):
        words = shlex.split(part)
        while words and re.fullmatch(r"[A-Z_]+=\S+", words[0]):
            del words[0]
        if words[:1] == ["tvm-codl"]:
            parse(words[1:])
        elif words[:1] == ["make"]:
            check_make(words[1:])
        elif words[:1] == ["python"]:
            check_python(words[1:])
        else:
            assert not words, f"{page} has a command of another kind: {part}"


def parse(words: list[str]) -> None:
    """As ``tvm-codl`` does, up to the call: the command exists, its options do, and their values are of their types."""
    command: click.Command = cli
    path = ["tvm-codl"]
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"{' '.join(path)} has no command {words[0]}"
        command, path, words = found, [*path, words[0]], words[1:]
    if isinstance(command, click.Group):
        return
    with command.make_context(" ".join(path), words):
        pass


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {word for word in words if "=" not in word} <= set(targets)


def check_python(words: list[str]) -> None:
    if words[0] == "-m":
        spec = importlib.util.find_spec(words[1])
        assert spec is not None and spec.origin is not None, words[1]
        text, rest = Path(spec.origin).read_text(encoding="utf-8"), words[2:]
    else:
        text, rest = help_of(words[0]), words[1:]
    for option in (word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)):
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text), f"{words} has no {option}"


@functools.cache
def help_of(script: str) -> str:
    line = [sys.executable, str(ROOT / script), "--help"]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout


INLINE = sorted(
    {(page.name, code) for page in PAGES for code in re.findall(r"`(tvm-codl [^`\n]+)`", page.read_text("utf-8"))}
)


@pytest.mark.parametrize(("page", "code"), INLINE)
def test_commands_in_sentences_exist(page: str, code: str) -> None:
    """These have placeholders, so only the command's and the options' names are looked at."""
    command: click.Command = cli
    for word in code.replace("\\|", "|").split()[1:]:
        if not isinstance(command, click.Group):
            break
        for name in word.split("|"):
            found = command.get_command(click.Context(command), name)
            if not name.startswith("-") and name != "COMMAND":
                assert found is not None, name
        command = found or command
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", code)) <= known


def test_phone_errors_are_real() -> None:
    """The first column of the tables of what may fail: what is between the parts that differ is in the sources."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tvm_codl").rglob("*.py"))
    rows = re.findall(r"^\| `([^|]+)` \|", (ROOT / "docs/phone.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 20
    for words in rows:
        fixed = re.split(
            r"…|\b(?:forward|reverse)\b|127\.0\.0\.1(?::\d+)?|'pixel'|\d+\.\d+|\b\d+\b|(?:FAIL|note)  |`, `", words
        )
        longest = max(fixed, key=len).strip()
        assert longest in sources, words


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.page)
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.page, "exec")


def test_the_plan_in_the_pages_is_one() -> None:
    (block,) = blocks("json")
    assert len(parse_plan(block.text).operators) == 2


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_pages_run_in_order(page: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "TVM_CODL_CACHE": str(tmp_path / "cache")}
    install = ("sudo ", "make install", ". .venv/")
    for block in blocks("", "bash", "python"):
        if block.page != page:
            continue
        lines = [line for line in block.lines if not line.startswith(install)]
        line = [sys.executable, "-c", block.text] if block.kind == "python" else ["bash", "-euc", "\n".join(lines)]
        done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
