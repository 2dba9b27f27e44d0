"""The words of ``tvm-codl run``: what a library takes, and what only a model does."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tvm_codl.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--shape", "x:[1,3,8,8]"], "--shape: for a MODEL alone"),
        (["--plan", "cpu-only"], "--plan: for a MODEL alone"),
        (["--budget", "120"], "--budget: for a MODEL alone"),
        (["--tuning-records", "a.log", "--records", "r.sqlite"], "--records, --tuning-records: for a MODEL alone"),
    ],
)
def test_what_only_a_model_takes_is_refused_for_a_library(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "model.so", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and f"error: {named}, and model.so is a library" in err and "  next: leave" in err


def test_what_a_library_takes_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """It goes on to the inputs, of which there are none."""
    assert run(["run", "model.so", "--repeat", "2", "--number", "3", "--local", "-i", "none.npz"]) == 1
    assert "none.npz is no .npz file" in capsys.readouterr().err


def test_a_model_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "zoo:nothing", "--plan", "cpu-only", "--budget", "3"]) == 1
    assert "the zoo has no model" in capsys.readouterr().err


def one_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def damaged(path: Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, x=np.zeros(1000))
    content = bytearray(path.read_bytes())
    content[60:80] = bytes(20)
    path.write_bytes(content)


def other_archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.txt", "not an array")


@pytest.mark.parametrize("write", [one_array, damaged, other_archive, Path.touch])
def test_inputs_that_are_no_arrays_by_name_are_refused(
    write: Callable[[Path], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "in.npz")
    assert run(["run", "model.so", "-i", str(tmp_path / "in.npz")]) == 1
    assert "in.npz is no .npz file of arrays" in capsys.readouterr().err
