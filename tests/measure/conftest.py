"""A store, and a compiler that is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.measure.null_phone import NullCompiler, in_this_process
from tvm_codl.measure import libraries, measurer
from tvm_codl.records.store import RecordStore


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
