"""tutorials/java: a Java program runs a library that Python exported, and its numbers are checked here too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from rpc_apps.android_rpc import tvm4j
from tests.phone.app import compiled_server
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.reference import reference_outputs

FOLDER = Path(__file__).parents[2] / "tutorials/java"


def run(binding: tvm4j.Binding, classes: Path, exported: Path) -> subprocess.CompletedProcess[str]:
    words = [tvm4j.java_tool("java"), "-cp", f"{classes}:{binding.classes}", *binding.options(), "RunLibrary"]
    return subprocess.run([*words, str(exported)], capture_output=True, text=True, timeout=300, check=False)


def test_the_numbers_of_the_java_program(tmp_path: Path) -> None:
    binding, _ = compiled_server(tmp_path / "server")
    classes, exported = tmp_path / "java", tmp_path / "exported"
    tvm4j.javac([FOLDER / "RunLibrary.java"], classes, [binding.classes], "--release", "11", "-Xlint:all", "-Werror")
    subprocess.run(
        [sys.executable, FOLDER / "export.py", "zoo:small", "-o", exported, "--seed", "3"],
        check=True, timeout=300, env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1])},
    )  # fmt: skip
    done = run(binding, classes, exported)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"\d+ numbers, max_abs_err \S+, \d+\.\d+ ms\n", done.stdout)
    network = load_model("zoo:small")
    ((name, shape, _),) = network.inputs
    given = np.fromfile(exported / "input.bin", "<f4").reshape(shape)
    expected = reference_outputs(network, {name: given})[0]
    got = np.fromfile(exported / "output.bin", "<f4").reshape(expected.shape)
    np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max())
    # Another input is not what onnxruntime was asked, and the program says so.
    (given + 1).astype("<f4").tofile(exported / "input.bin")
    assert run(binding, classes, exported).returncode == 4


def test_the_readme_tells_what_the_program_does() -> None:
    told = (FOLDER / "README.md").read_text(encoding="utf-8")
    program = (FOLDER / "RunLibrary.java").read_text(encoding="utf-8")
    for line in re.findall(r"getFunction\(.*?asModule\(\);|new GraphModule\(.*?\);", program):
        assert line in told
