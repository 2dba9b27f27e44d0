"""The lock file's packages install on each Python that the README names, the oldest patch release of Debian's too."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

LOCK = (Path(__file__).parents[2] / "requirements.lock").read_text(encoding="utf-8")


@pytest.mark.parametrize("python", ["3.11.2", "3.12.0"])  # Debian 12 has 3.11.2
def test_no_package_needs_a_newer_python(python: str) -> None:
    names = re.findall(r"^([\w.-]+)==", LOCK, re.MULTILINE)
    wanted = {name: metadata.metadata(name).get("Requires-Python") or "" for name in names if name != "mediapipe"}
    assert len(wanted) > 100
    assert [name for name, pythons in wanted.items() if python not in SpecifierSet(pythons)] == []
