"""The Relay tutorial as its page has it: each network through the passes by hand, to a library that runs."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_codl as codl
from tvm_codl.build.elf import check_library

FOLDER = Path(__file__).parents[2] / "tutorials" / "relay"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def run(*arguments: str, compiler: str = "g++") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1]), "TVM_NDK_CC": compiler}
    if not compiler:
        del environment["TVM_NDK_CC"]
    return subprocess.run(
        [sys.executable, str(FOLDER / "by_hand.py"), *arguments],
        capture_output=True, text=True, timeout=600, check=False, env=environment,
    )  # fmt: skip


def page() -> str:
    return (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("network", ["resnet", "own", "torch"])
def test_each_network_ends_as_a_library_that_is_right(network: str, tmp_path: Path) -> None:
    done = run(network, "-o", str(tmp_path))
    if network == "torch" and importlib.util.find_spec("torch") is None:
        assert (done.returncode, done.stdout) == (1, "")
        assert "PyTorch" in done.stderr and "Traceback" not in done.stderr
        return
    assert done.returncode == 0, done.stderr[-4000:]
    found = re.fullmatch(rf"{tmp_path}/{network}\.so: (\d+) of (\d+) operators on both processors\n", done.stdout)
    assert found and 2 * int(found[1]) > int(found[2]) > 3, done.stdout
    assert "agrees with TVM's executor" in done.stderr
    check_library(tmp_path / f"{network}.so", "x86_64")


def test_without_a_compiler_it_says_which_to_name(tmp_path: Path) -> None:
    done = run("own", "-o", str(tmp_path), compiler="")
    assert done.returncode == 1 and "TVM_NDK_CC=g++" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_page_says_what_the_script_does() -> None:
    script = (FOLDER / "by_hand.py").read_text(encoding="utf-8")
    short, *blocks = BLOCK.findall(page())
    assert len(blocks) == 4
    for line in [short.splitlines()[0], *(line for block in blocks for line in block.splitlines())]:
        assert line.removeprefix("mod, params =").strip() in script, line
    assert set(re.findall(r"by_hand\.py (\w+)", page())) == {"resnet", "own", "torch"}
    assert set(re.findall(r"codl\.(\w+)", page())) <= set(codl.__all__)
