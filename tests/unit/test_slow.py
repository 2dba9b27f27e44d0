"""The slow tier's table: what CI runs once what it covers changes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import slow
from tests.slow import Tier

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None or not (slow.ROOT / ".git").exists(), reason="the slow tier's table is a repository's"
)
MARKED = re.compile(
    r"^\s*@?(?:pytestmark = \[?)?pytest\.mark\.slow\b|marks=.*pytest\.mark\.slow|^@given\(", re.MULTILINE
)
FAILING, PASSING, SKIPPED = "assert False", "pass", "pytest.skip('no such thing here')"


def test_every_file_with_slow_tests_is_in_it_and_what_it_covers_is_there() -> None:
    files = {
        path.relative_to(slow.ROOT).as_posix()
        for path in (slow.ROOT / "tests").rglob("test_*.py")
        if MARKED.search(path.read_text("utf-8"))
    }
    listed = [tier.tests for tier in slow.tiers()]
    held = {one: {file for file in files if file == one or file.startswith(f"{one}/")} for one in listed}
    assert all(held.values()) and listed == sorted(listed)
    assert sorted(file for files in held.values() for file in files) == sorted(files)
    assert all(len(slow.digest(tier)) == 16 for tier in slow.tiers())


@pytest.fixture()
def root(tmp_path: Path) -> Path:
    """A repository with one file of slow tests, which covers the folder ``source``."""
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\nmarkers =\n    slow: takes long\n", "utf-8")
    (tmp_path / "source/inner").mkdir(parents=True)
    (tmp_path / "source/inner/a.py").write_text("1", "utf-8")
    (tmp_path / "other.py").write_text("1", "utf-8")
    write_tests(tmp_path, PASSING)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "add", "-A"], check=True)
    return tmp_path


TIER = Tier("test_a.py", ("source",))


def write_tests(root: Path, body: str, quick: str = PASSING) -> None:
    text = f"import time\nimport pytest\n\n@pytest.mark.slow\ndef test_a():\n    {body}\n\ndef test_quick():\n    {quick}\n"
    (root / "test_a.py").write_text(text, "utf-8")


def test_the_digest_is_of_what_is_covered_and_of_the_tests(root: Path) -> None:
    first = slow.digest(TIER, root)
    assert first == slow.digest(TIER, root)
    (root / "other.py").write_text("2", "utf-8")
    assert slow.digest(TIER, root) == first
    (root / "source/inner/a.py").write_text("2", "utf-8")
    second = slow.digest(TIER, root)
    (root / "source/b.py").write_text("", "utf-8")  # git does not know it yet
    third = slow.digest(TIER, root)
    write_tests(root, FAILING)
    assert len({first, second, third, slow.digest(TIER, root)}) == 4


def test_due_is_what_did_not_pass_as_it_is_now(root: Path) -> None:
    passed = Tier(TIER.tests, TIER.covers, slow.digest(TIER, root))
    assert slow.due([TIER, passed], root) == [TIER]
    (root / "source/inner/a.py").write_text("2", "utf-8")
    assert slow.due([TIER, passed], root) == [TIER, passed]


def test_what_is_covered_must_be_there(root: Path) -> None:
    with pytest.raises(ValueError, match="covers sauce, which is not there"):
        slow.digest(Tier("test_a.py", ("source", "sauce")), root)


@pytest.mark.parametrize(("body", "outcome"), [(PASSING, "passed"), (FAILING, "failed"), (SKIPPED, "skipped")])
def test_only_slow_tests_run_and_a_skipped_one_has_not_passed(root: Path, body: str, outcome: str) -> None:
    write_tests(root, body, quick=FAILING)
    assert slow.run(TIER, 60.0, root) == outcome


def test_a_file_without_slow_tests_has_failed(root: Path) -> None:
    (root / "test_a.py").write_text("def test_quick(): pass\n", "utf-8")
    assert slow.run(TIER, 60.0, root) == "failed"


def test_what_takes_too_long_is_ended(root: Path) -> None:
    write_tests(root, "time.sleep(600)")
    assert slow.run(TIER, 3.0, root) == "out of time"


def test_the_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    lines = [TIER, Tier("test_b.py", ("x", "y"), "0123456789abcdef")]
    slow.write(lines, tmp_path / "table.json")
    assert slow.tiers(tmp_path / "table.json") == lines
    (tmp_path / "table.json").write_text('[{"tests": "a"}]', "utf-8")
    with pytest.raises(ValueError, match="has tests and covers"):
        slow.tiers(tmp_path / "table.json")
