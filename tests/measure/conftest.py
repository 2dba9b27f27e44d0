"""A store, a compiler that is none, and pages in a browser where there is one."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.measure.null_phone import NullCompiler, in_this_process
from tvm_codl.measure import libraries, measurer
from tvm_codl.records.store import RecordStore

#: A page in a browser, and what its console and its requests said.
Opened = tuple[Any, list[str]]
OpenPage = Callable[[str], Opened]


@pytest.fixture(scope="module")
def open_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenPage]:
    """Opens the text of a page."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium here: docker/install/browser.sh installs it as root")
    from playwright.sync_api import sync_playwright

    folder, numbers = tmp_path_factory.mktemp("pages"), itertools.count()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

        def opened(text: str) -> Opened:
            file = folder / f"{next(numbers)}.html"
            file.write_text(text, encoding="utf-8")
            said: list[str] = []
            tab = browser.new_page()
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            tab.on("request", lambda request: said.append(request.url))
            tab.goto(file.as_uri())
            return tab, said

        yield opened
        browser.close()


def assert_no_barrier(tab: Any, scheme: str) -> None:
    """By axe, in a colour scheme, ``light`` or ``dark``."""
    from axe_playwright_python.sync_playwright import Axe

    tab.emulate_media(color_scheme=scheme)
    found = Axe().run(tab)
    assert not found.response["violations"], found.generate_report()
    assert found.response["passes"]


@pytest.fixture()
def store(tmp_path: Path) -> Iterator[RecordStore]:
    with RecordStore(tmp_path / "records.sqlite") as opened:
        yield opened


@pytest.fixture()
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NullCompiler:
    made = NullCompiler()
    monkeypatch.setattr(libraries, "build_batch", made)
    monkeypatch.setattr(libraries, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(libraries, "build_all", in_this_process)
    monkeypatch.setattr(measurer.os, "sched_getaffinity", lambda pid: {0})  # how many batches a few probes make
    return made
