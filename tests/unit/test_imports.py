"""Imports go one way: data flows from folder to folder and never back, and the core knows no TVM."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import tvm_codl

ROOT = Path(tvm_codl.__file__).parent
CORE = ("graph", "records", "cost", "plan")

#: What each folder may import of the others, in an order in which nothing imports what comes after it.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "paths": set(),
    "sources": set(),
    "graph": {"errors"},
    "records": {"errors", "graph"},
    "runtime": {"errors", "paths", "records"},
    "device": {"errors", "paths", "runtime"},
    "build": {"errors", "paths", "graph", "records", "runtime"},
    "kernels": {"errors", "paths", "sources", "records", "runtime", "device", "build"},
    "cost": {"errors", "graph", "records", "kernels"},
    "plan": {"errors", "graph", "records", "cost"},
    "report": {"errors", "kernels", "cost"},
    "relay": {"errors", "graph", "plan"},
    "frontend": {"errors", "paths", "graph", "relay"},
    "measure": {
        *("errors", "paths", "sources", "graph", "records", "runtime", "device", "build", "kernels", "cost", "plan"),
        *("report", "frontend", "relay"),
    },
    "api": {
        *("errors", "paths", "graph", "records", "runtime", "device", "build", "kernels", "cost", "plan", "report"),
        *("frontend", "relay", "measure"),
    },
    "cli": {
        *("errors", "paths", "graph", "records", "runtime", "device", "build", "kernels", "cost", "plan", "report"),
        *("frontend", "relay", "measure", "api"),
    },
    "__main__": {"cli"},
    "__init__": set(),
}


def module_of(path: Path) -> str:
    """``graph.opgraph`` for tvm_codl/graph/opgraph.py."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def folder_of(path: Path) -> str:
    """The folder that a file belongs to; a file at the top is one of its own."""
    return module_of(path).split(".")[0]


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
        if folder_of(path) in (*CORE, "errors", "paths", "report"):
            for module, line in imported(path):
                assert module.split(".")[0] != "tvm", f"{path}:{line} imports {module}"


def check_imports_without_tvm(files: Iterable[Path]) -> None:
    """In a process of its own, where ``import tvm`` fails."""
    modules = [".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in files]
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
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("folder", CORE)
def test_the_core_works_where_there_is_no_tvm(folder: str) -> None:
    check_imports_without_tvm(p for p in FILES if folder_of(p) == folder and p.name != "__init__.py")


def test_what_is_asked_of_records_needs_no_tvm() -> None:
    """Importing it takes longer than explaining a plan."""
    names = ("measure/offline_costs.py", "measure/network_page.py", "measure/known_network.py", "report/page.py")
    check_imports_without_tvm(ROOT / name for name in names)


def test_the_unit_tests_work_where_there_is_no_tvm() -> None:
    check_imports_without_tvm(sorted((ROOT.parent / "tests" / "unit").rglob("*.py")))


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
            there = rest.split(".")[0]
            if package == "tvm_codl" and there and there not in ALLOWED[here] | {here}:
                wrong.append(f"{path.relative_to(ROOT.parent)}:{line}: {here} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_every_folder_has_its_place() -> None:
    assert {folder_of(path) for path in FILES} <= ALLOWED.keys()


def test_nobody_imports_the_command_line() -> None:
    for path in FILES:
        if folder_of(path) not in ("cli", "__main__"):
            assert not [m for m, _ in imported(path) if m.startswith("tvm_codl.cli")], path
