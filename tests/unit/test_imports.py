"""Imports go one way: data flows from folder to folder and never back, and the core knows no TVM."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tvm_codl

ROOT = Path(tvm_codl.__file__).parent
CORE = ("graph", "records", "cost", "plan")

#: What each folder may import of the others; a file at the top counts by its name.
ALLOWED = {
    "errors": set(),
    "graph": {"errors"},
    "records": {"errors", "graph"},
    "cost": {"errors", "graph", "records"},
    "plan": {"errors", "graph", "records", "cost"},
    "report": {"errors"},
    "frontend": {"errors", "device"},
    "relay": {"errors", "graph", "plan"},
    "schedule": {"errors", "device", "runtime"},
    "build": {"errors", "runtime", "schedule"},
    "runtime": {"errors", "build", "device"},
    "device": {"errors", "runtime"},
    "measure": {"errors", "device", "graph", "records", "cost", "plan", "relay", "schedule", "build", "runtime"},
    "targets": {"errors", "device", "schedule"},
}
#: The way through, and what stands on it: these may import anything but the command line.
ABOVE = {"workflow", "bench", "demo"}


def folder_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """(module, line) of every import in a file, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            assert node.module is not None
            if node.module == "tvm_codl":
                yield from ((f"tvm_codl.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module, node.lineno


FILES = sorted(ROOT.rglob("*.py"))


def test_the_core_imports_no_tvm() -> None:
    for path in FILES:
        if folder_of(path) in (*CORE, "errors", "report"):
            for module, line in imported(path):
                assert module.split(".")[0] != "tvm", f"{path}:{line} imports {module}"


@pytest.mark.parametrize("folder", CORE)
def test_the_core_works_where_there_is_no_tvm(folder: str) -> None:
    modules = [
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        for path in FILES
        if folder_of(path) == folder and path.name != "__init__.py"
    ]
    script = f"""
import importlib, sys
class NoTVM:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "tvm":
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)
sys.meta_path.insert(0, NoTVM())
for name in {modules!r}:
    importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_folders_import_only_what_lies_before_them() -> None:
    wrong = []
    for path in FILES:
        here = folder_of(path)
        for module, line in imported(path):
            parts = module.split(".")
            if parts[0] != "tvm_codl" or len(parts) < 2 or parts[1] == here:
                continue
            if here in ABOVE | {"cli", "__main__"} and parts[1] != "cli":
                continue
            if parts[1] not in ALLOWED.get(here, set()) and not (here == "__main__" and parts[1] == "cli"):
                wrong.append(f"{path.relative_to(ROOT.parent)}:{line}: {here} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_every_folder_has_its_place() -> None:
    known = ALLOWED.keys() | ABOVE | {"cli", "__main__", "__init__", "tuned"}
    assert {folder_of(path) for path in FILES} <= known


def test_nobody_imports_the_command_line() -> None:
    for path in FILES:
        if folder_of(path) not in ("cli", "__main__"):
            assert not [m for m, _ in imported(path) if m.startswith("tvm_codl.cli")], path
