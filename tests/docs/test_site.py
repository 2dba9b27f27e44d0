"""The site builds without a warning, is complete, and asks no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from mkdocs.config import load_config

import tvm_codl
from tests.docs.pages import ROOT
from tvm_codl.cli.main import COMMANDS


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    return folder


class Fetched(HTMLParser):
    """The addresses that a browser fetches for a page; links to click are none."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = ("href",) if tag == "link" else () if tag == "a" else ("src", "srcset", "data", "poster")
        self.addresses += [value for name, value in attrs if name in names and value]


def test_no_page_asks_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        fetched = Fetched()
        fetched.feed(page.read_text(encoding="utf-8"))
        assert fetched.addresses
        assert not [one for one in fetched.addresses if re.match(r"(\w+:)?//", one)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_lists_are_lists(site: Path) -> None:
    """Python's Markdown wants a blank line before a list, GitHub does not."""
    for page in site.rglob("*.html"):
        assert not re.search(r"<p>[^<]*\n- ", page.read_text(encoding="utf-8")), page


def test_every_page_is_in_the_navigation() -> None:
    def pages(entries: Any) -> set[str]:
        if isinstance(entries, str):
            return {entries}
        return set().union(*map(pages, entries.values() if isinstance(entries, dict) else entries))

    named = pages(load_config(str(ROOT / "mkdocs.yml"))["nav"])
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= named


def test_the_references_are_complete(site: Path) -> None:
    commands = (site / "reference-cli.html").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f'id="tvm-codl-{name}"' not in commands] == []
    assert "--what-if" in commands and "shell-check" in commands
    python = (site / "reference-python.html").read_text(encoding="utf-8")
    ids = {name.rpartition(".")[2] for name in re.findall(r'id="(tvm_codl[\w.]*)"', python)}
    assert [name for name in tvm_codl.__all__ if name not in ids] == []
    assert ":class:" not in python and ":func:" not in python
