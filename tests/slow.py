"""The slow tier: runs the slow tests of each file by themselves, and remembers for which sources they passed.

Property tests are slow tests too: here they draw more examples, and new ones (``tests/examples.py``).

``make test-slow`` runs all of them and writes a digest of what each file covers into ``slow.json``; ``--changed``, which
``.ci/run`` says, runs only those whose digest is another one now.  A file whose slow tests were skipped, or did not run for
want of time, keeps its old digest and so stays due.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.examples import PROFILE

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".json")
#: pytest's exit code where nothing was collected.
NO_TESTS = 5


@dataclass(frozen=True)
class Tier:
    """One file or folder with slow tests, the files and folders of the repository that they cover, and the digest of these when the
    tests last passed ("": never)."""

    tests: str
    covers: tuple[str, ...]
    passed: str = ""


def tiers(table: Path = TABLE) -> list[Tier]:
    """The table's lines; raises :class:`ValueError` for one that is none."""
    lines = json.loads(table.read_text(encoding="utf-8"))
    try:
        return [Tier(str(one["tests"]), tuple(map(str, one["covers"])), str(one.get("passed", ""))) for one in lines]
    except (TypeError, KeyError) as error:
        raise ValueError(f"{table}: a line has tests and covers: {error}") from error


def digest(tier: Tier, root: Path = ROOT) -> str:
    """16 hexadecimal digits of the names and contents of what git knows, or could add, of a tier's files.

    Raises :class:`ValueError` for a path under which nothing is.
    """
    paths = (tier.tests, *tier.covers)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    found = subprocess.run([*listed, *paths], cwd=root, capture_output=True, text=True, check=True).stdout
    names = sorted({name for name in found.split("\0") if name and (root / name).is_file()})
    for path in paths:
        if not any(name == path or name.startswith(f"{path}/") for name in names):
            raise ValueError(f"{tier.tests} covers {path}, which is not there")
    total = hashlib.sha256()
    for name in names:
        total.update(f"{name} {hashlib.sha256((root / name).read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:16]


def due(all_tiers: Iterable[Tier], root: Path = ROOT) -> list[Tier]:
    """Those whose sources are not the ones for which they passed."""
    return [tier for tier in all_tiers if digest(tier, root) != tier.passed]


def run(tier: Tier, limit_s: float, root: Path = ROOT, new_examples: bool = True) -> str:
    """Runs a file's slow tests: "passed", "failed", "skipped" (not one test failed, not all ran) or "out of time".

    With ``new_examples`` its property tests too, which then draw new examples.  A change is not judged by these: what they
    find may be older than it.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # Hypothesis marks its tests itself.
        marked, profile = ("slow or hypothesis", "slow") if new_examples else ("slow", "fast")
        line = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", "-m", marked, tier.tests]
        child = subprocess.Popen(line, cwd=root, env={**os.environ, PROFILE: profile}, start_new_session=True)
        try:
            code = child.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return "out of time"
        finally:
            # Also what a test started and left, and all of it when this is interrupted.
            _end(child.pid)
        if code == NO_TESTS and not new_examples:  # all its slow tests are property tests
            return "skipped"
        if code:
            return "failed"
        suites = list(xml.parse(report).getroot().iter("testsuite"))
        skipped = sum(int(suite.get("skipped", "0")) for suite in suites)
        return "skipped" if skipped or not sum(int(suite.get("tests", "0")) for suite in suites) else "passed"


def _end(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def write(all_tiers: Iterable[Tier], table: Path = TABLE) -> None:
    lines = [json.dumps(asdict(tier)) for tier in all_tiers]
    table.write_text("[\n" + ",\n".join(f"  {line}" for line in lines) + "\n]\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the slow tests, and remembers for which sources they passed.")
    parser.add_argument("--changed", action="store_true", help="only those whose sources changed; nothing is written")
    parser.add_argument("--minutes", type=float, default=600.0, help="start none, and end one, after so long")
    parser.add_argument("tests", nargs="*", help="files with slow tests (default: all)")
    asked = parser.parse_args()
    table = tiers()
    unknown = set(asked.tests) - {tier.tests for tier in table}
    if unknown:
        parser.error(f"no files with slow tests: {', '.join(sorted(unknown))}; see {TABLE.relative_to(ROOT)}")
    wanted = due(table) if asked.changed else table
    wanted = [tier for tier in wanted if not asked.tests or tier.tests in asked.tests]
    print(f"slow tests: {len(wanted)} of {len(table)} files to run", flush=True)
    end = time.monotonic() + 60 * asked.minutes
    outcomes: dict[str, str] = {}
    for tier in wanted:
        before, left = digest(tier), end - time.monotonic()
        outcomes[tier.tests] = run(tier, left, new_examples=not asked.changed) if left > 0 else "out of time"
        print(f"slow tests: {tier.tests}: {outcomes[tier.tests]}", flush=True)
        # What was edited meanwhile has not passed.
        if outcomes[tier.tests] == "passed" and not asked.changed and digest(tier) == before:
            # Read anew: others may have passed in another run meanwhile.
            write([Tier(t.tests, t.covers, before) if t.tests == tier.tests else t for t in tiers()])
    return 1 if "failed" in outcomes.values() else 0


if __name__ == "__main__":
    sys.exit(main())
