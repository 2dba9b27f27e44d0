"""A script outside of the package gets the commands' options, exit codes and errors."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tvm_codl.cli.main import run
from tvm_codl.cli.options import PhoneChoice, phone_options, tuning_options
from tvm_codl.errors import DeviceError


@click.command()
@phone_options
@tuning_options
def script(phone: PhoneChoice, trials: int, budget: float, output: Path) -> None:
    if trials == 7:
        raise DeviceError("the phone is gone", "seen", "do this")
    click.echo(f"{trials} {budget:g} {output}")


def test_defaults_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([], script, "mine.py") == 0
    assert run(["--trials", "2", "--budget", "5", "-o", "out"], script, "mine.py") == 0
    assert capsys.readouterr().out == "128 300 .\n2 5 out\n"


def test_mistakes_and_failures_end_as_the_commands_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--trials", "0"], script, "mine.py") == 2
    assert "Usage: mine.py" in capsys.readouterr().err
    assert run(["--trials", "7"], script, "mine.py") == 3
    assert capsys.readouterr().err == "error: the phone is gone\n  evidence: seen\n  next: do this\n"
