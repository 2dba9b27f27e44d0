"""pytest enters every folder with tests: it leaves out some names, such as build, unless told otherwise."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def test_no_folder_with_tests_is_left_out(pytestconfig: pytest.Config) -> None:
    left_out = pytestconfig.getini("norecursedirs")
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    assert Path("build") in folders
    assert not [f for f in folders if any(fnmatch(part, name) for part in f.parts for name in left_out)]
