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
CORE = ("graph", "records", "tiling", "cost", "plan")

#: Parts of two folders that others stand on: finding OpenCL and the cache folder, and the native code itself.
PARTS = {
    "device.opencl": "opencl",
    "device.pocl": "opencl",
    "device.probe": "opencl",
    "runtime.compile": "native",
    "runtime.plugin": "native",
    "runtime.server_build": "native",
}
#: What each folder or part may import of the others, in an order in which nothing imports what comes after it.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "platforms": {"errors"},
    "opencl": {"errors"},
    "native": {"errors", "opencl", "platforms"},
    "graph": {"errors"},
    "records": {"errors", "graph"},
    "tuned": set(),
    "tiling": {"errors", "tuned"},
    "cost": {"errors", "records", "tiling"},
    "plan": {"errors", "graph", "records", "cost"},
    "report": {"errors", "cost"},
    "frontend": {"errors", "opencl"},
    "relay": {"errors", "graph", "plan"},
    "device": {"errors", "platforms", "opencl", "native"},
    "schedule": {"errors", "tuned", "tiling"},
    "targets": {"errors", "device", "schedule"},
    "build": {"errors", "platforms", "native"},
    "runtime": {"errors", "plan", "build"},
    "measure": {
        *("errors", "opencl", "device", "graph", "records", "tiling", "cost", "plan", "relay", "schedule", "targets"),
        *("build", "runtime"),
    },
}
#: The way through, and what stands on it: these may import anything but the command line.
ABOVE = {
    "workflow",
    "prepared",
    "learning",
    "busy_look",
    "second_look",
    "interleave",
    "settling",
    "bench",
    "demo",
    "rank",
    "known",
    "tuning",
}


def module_of(path: Path) -> str:
    """``graph.opgraph`` for tvm_codl/graph/opgraph.py."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def part_of(module: str) -> str:
    """The folder or part that a module (``graph.opgraph``) belongs to; a file at the top is one of its own."""
    return PARTS.get(".".join(module.split(".")[:2]), module.split(".")[0])


def folder_of(path: Path) -> str:
    return part_of(module_of(path))


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """(module, line) of every import in a file, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                place = ROOT.parent.joinpath(*inner.split("."))
                yield (inner if place.with_suffix(".py").exists() or place.is_dir() else node.module), node.lineno


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


def test_the_order_has_no_way_back() -> None:
    before: set[str] = set()
    for folder, allowed in ALLOWED.items():
        assert allowed <= before, folder
        before.add(folder)


def test_folders_import_only_what_lies_before_them() -> None:
    wrong = []
    for path in FILES:
        here = folder_of(path)
        for module, line in imported(path):
            package, _, rest = module.partition(".")
            if package != "tvm_codl" or not rest or part_of(rest) == here:
                continue
            free = here in ABOVE | {"cli", "__main__"} and (part_of(rest) != "cli" or here == "__main__")
            if not free and part_of(rest) not in ALLOWED.get(here, set()):
                wrong.append(f"{path.relative_to(ROOT.parent)}:{line}: {here} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_every_folder_has_its_place() -> None:
    known = ALLOWED.keys() | ABOVE | {"cli", "__main__", "__init__"}
    assert {folder_of(path) for path in FILES} <= known


def test_nobody_imports_the_command_line() -> None:
    for path in FILES:
        if folder_of(path) not in ("cli", "__main__"):
            assert not [m for m, _ in imported(path) if m.startswith("tvm_codl.cli")], path
