"""Exit codes, and which stream says what."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tvm_codl.cli import doctor, main
from tvm_codl.cli.main import COMMANDS, cli, run
from tvm_codl.device.health import Check
from tvm_codl.errors import CheckFailed, DeviceError, UsageError, UserError


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_its_own_words(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert f"Usage: tvm-codl {name}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["plan"], ["plan", "a", "b"], ["bench", "m", "--repeat", "0"]])
def test_usage_errors_are_2_and_go_to_stderr(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Usage" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("what", "seen", "do this"), 1),
        (UsageError("what", "seen", "do this"), 2),
        (DeviceError("what", "seen", "do this"), 3),
        (CheckFailed("what", "seen", "do this"), 4),
    ],
)
def test_our_errors_end_without_a_traceback(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: fail)
    assert run(["doctor"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: what\n  evidence: seen\n  next: do this\n"


@pytest.mark.parametrize("name", ["tvm", "tvm.relay"])
def test_missing_tvm_sends_to_the_doctor(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def fail() -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: fail)
    assert run(["plan"]) == 1
    assert "tvm-codl doctor" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "a b/plan.json"),
            "a b/plan.json cannot be used\n  evidence: FileNotFoundError: No such file or directory\n"
            "  next: ls -ld 'a b' 'a b/plan.json'\n",
        ),
        (
            OSError(errno.EXDEV, "Invalid cross-device link", b"from", None, b"to"),
            "to cannot be used\n  evidence: OSError: Invalid cross-device link\n  next: ls -ld . to\n",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "a file cannot be written\n  evidence: OSError: No space left on device\n  next: df -h\n",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "out/plan.json"),
            "out/plan.json cannot be written\n  evidence: OSError: No space left on device\n  next: df -h out\n",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_the_users_error(
    error: OSError, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: fail)
    assert run(["plan"]) == 1
    assert capsys.readouterr() == ("", f"error: {told}")


def test_a_tvm_without_the_library_that_it_needs_is_sent_to_doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def fail() -> None:
        ctypes.CDLL("libno_such_llvm.so.22")

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: fail)
    assert run(["plan"]) == 1
    told = capsys.readouterr().err
    assert "libno_such_llvm.so.22: cannot open shared object file" in told and "next: tvm-codl doctor" in told


def test_an_error_that_names_no_file_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fail() -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: fail)
    with pytest.raises(ConnectionRefusedError):
        run(["plan"])


def test_a_defect_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'tvm_codl.nothing'", name="tvm_codl.nothing")

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: fail)
    with pytest.raises(ModuleNotFoundError):
        run(["plan"])


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([Check("a", True, "x")], 0),
        ([Check("a", True, "x"), Check("b", False, "y", "mend", device=True)], 3),
        ([Check("a", False, "x", "mend"), Check("b", False, "y", device=True)], 1),
    ],
)
def test_doctor(
    results: list[Check], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "run_checks", lambda: iter(results))
    assert run(["doctor"]) == code
    text = capsys.readouterr().out
    assert text.count("FAIL") == sum(not r.ok for r in results)
    assert text.count("next: mend") == sum(bool(r.remedy) for r in results)
    assert text.splitlines()[-1] == (
        "All is well. Run: tvm-codl bench zoo:resnet18" if code == 0 else "Then again: tvm-codl doctor"
    )
    assert run(["doctor", "--json"]) == code
    assert [c["name"] for c in json.loads(capsys.readouterr().out)] == [r.name for r in results]


@pytest.mark.parametrize(
    ("remedies", "end"),
    [
        (("first", "second"), "Run first: first\nThen again: tvm-codl doctor\n"),
        (("", "second"), "Run first: second\nThen again: tvm-codl doctor\n"),
        (("", ""), "a0 failed, and no command is known to mend it.\n"),
    ],
)
def test_doctor_ends_with_what_to_mend_first(
    remedies: tuple[str, ...], end: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [Check("fine", True, "x"), *(Check(f"a{i}", False, "x", remedy) for i, remedy in enumerate(remedies))]
    monkeypatch.setattr(doctor, "run_checks", lambda: iter(checks))
    assert run(["doctor"]) == 1
    assert capsys.readouterr().out.endswith(end)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["plan", "missing.onnx"], 1, "no such model file"),
        (["plan", "garbage.onnx"], 1, "not an ONNX file"),
        (["bench", "zoo:nothing"], 1, "the zoo has no model"),
        (["plan", "zoo:small", "--shape", "x=1,b"], 2, "not name:[1,3,224,224]"),
        (["serve", "--tracker", "nowhere"], 2, "not host:port"),
        (["serve", "--tracker", "a:1", "--proxy", "b:2"], 2, "exclude each other"),
        (["plan", "zoo:small", "--local", "--rpc-proxy", "a:1"], 2, "--local excludes"),
        (["plan", "zoo:small", "--rpc-phones", "2"], 2, "found through a tracker"),
    ],
)
def test_bad_input_from_outside(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    (tmp_path / "garbage.onnx").write_bytes(b"garbage")
    done = subprocess.run(
        [sys.executable, "-m", "tvm_codl", *arguments],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(main.__file__).parents[2])},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
