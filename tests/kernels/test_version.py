"""The declared versions: a kernel's id follows them and the code that is generated, not the text of our sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import tvm_codl
from tests.kernels.golden import changed, digests, golden
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.kernels import version
from tvm_codl.kernels.schedules import kernel
from tvm_codl.kernels.toolchain import toolchain

PHONE = DeviceProfile("phone", "x86_64", "a CPU", (0,), "llvm", "a GPU", "opencl", gpu_version="1", build_id="first")


def test_code_of_this_version_is_what_it_was() -> None:
    number, before = golden()
    names = changed(before, digests())
    assert not names, "other code: raise KERNELS in tvm_codl/kernels/version.py and run python -m tests.kernels.golden"
    assert number == version.KERNELS, "the digests are of another version: run python -m tests.kernels.golden"


def test_another_tile_is_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    _, before = golden()
    choose = kernel.choose
    monkeypatch.setattr(kernel, "choose", lambda problem: msgspec.structs.replace(choose(problem), columns=3))
    names = changed(before, digests(["conv2d 3x3, never tuned", "pad"], ["x86 CPU"]))
    assert {name.partition(", x86")[0] for name in names} == {"conv2d 3x3, never tuned"}


@pytest.mark.parametrize(("name", "stale"), [("KERNELS", True), ("LIBRARIES", False)])
def test_a_raised_version_makes_libraries_stale_and_one_of_them_times_too(
    monkeypatch: pytest.MonkeyPatch, name: str, stale: bool
) -> None:
    before = toolchain(PHONE)
    monkeypatch.setattr(version, name, getattr(version, name) + 1)
    after = toolchain(PHONE)
    assert before.build_id != after.build_id
    assert (before.kernel_id != after.kernel_id) == stale


def test_a_comment_anywhere_makes_nothing_stale(tmp_path: Path) -> None:
    package = tmp_path / "tvm_codl"
    shutil.copytree(Path(tvm_codl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "native"))
    commented = [path for folder in ("graph", "kernels") for path in (package / folder).rglob("*.py")]
    for path in commented:
        path.write_text(path.read_text("utf-8") + "\n# a comment\n", "utf-8")
    script = (
        "import sys, msgspec, tvm_codl.kernels.toolchain as t\n"
        "profile = msgspec.json.decode(sys.argv[1], type=t.DeviceProfile)\n"
        "tools = t.toolchain(profile)\n"
        "print(t.__file__, tools.kernel_id, tools.build_id)\n"
    )
    profile = msgspec.json.encode(PHONE).decode()
    done = subprocess.run(
        [sys.executable, "-c", script, profile],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    place, *ids = done.stdout.split()
    assert Path(place) in commented
    assert ids == [toolchain(PHONE).kernel_id, toolchain(PHONE).build_id]
