"""Builds in processes of their own: in any order, none lost, and none that takes another along."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tvm_codl.build.pool import Outcome, build_all, deal, last_line
from tvm_codl.errors import UserError, WorkplaceError
from tvm_codl.records.record import ErrorNo


def named(index: int) -> Path:
    return Path(f"{index}.so")


def children() -> set[int]:
    """Not only builds: what tests before this one started may not have been waited for."""
    return {process.pid for process in psutil.Process().children()}


def gathered(count: int, build: object, workers: int = 2, limit_s: float = 20.0) -> dict[int, Outcome]:
    before = children()
    found = list(build_all(count, build, workers, limit_s))  # type: ignore[arg-type]
    assert sorted(index for index, _ in found) == list(range(count))
    assert children() <= before
    return dict(found)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_each_is_built_once_whatever_the_order(count: int, workers: int) -> None:
    assert {i: o.path for i, o in gathered(count, named, workers).items()} == {i: named(i) for i in range(count)}


def test_they_come_as_they_end() -> None:
    def build(index: int) -> Path:
        time.sleep(1.0 if index == 0 else 0.0)
        return named(index)

    assert [index for index, _ in build_all(3, build, workers=2)][-1] == 0


def test_builds_run_in_other_processes() -> None:
    found = gathered(2, lambda index: Path(str(os.getpid())))
    assert str(os.getpid()) not in {str(outcome.path) for outcome in found.values()}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_is_the_outcome_of_its_build_alone(workers: int) -> None:
    def build(index: int) -> Path:
        if index == 1:
            raise ValueError("Stack trace:\n  many lines\ncannot tile 7 by 4")
        return named(index)

    found = gathered(3, build, workers)
    assert (found[1].path, found[1].error) == (None, "ValueError: cannot tile 7 by 4")
    assert [found[i].path for i in (0, 2)] == [named(0), named(2)]


@pytest.mark.parametrize("end", [lambda: os._exit(3), lambda: os.kill(os.getpid(), signal.SIGKILL)])
def test_a_worker_that_crashes_takes_only_its_own_build_along(end: object) -> None:
    def build(index: int) -> Path:
        if index == 0:
            end()  # type: ignore[operator]
        return named(index)

    found = gathered(4, build)
    assert (found[0].path, found[0].error) == (None, "the compiler crashed")
    assert all(found[i].path == named(i) for i in (1, 2, 3))


def test_a_build_that_hangs_is_ended_at_its_limit() -> None:
    def build(index: int) -> Path:
        if index == 0:
            time.sleep(60)
        return named(index)

    started = time.monotonic()
    found = gathered(2, build, limit_s=1.0)
    assert time.monotonic() - started < 10
    assert found[0].path is None
    assert "longer than 1 s" in found[0].error
    assert found[1].path == named(1)


def test_a_build_is_ended_with_what_it_started_whatever_it_hears(tmp_path: Path) -> None:
    """As inside a compiler's native code, where Python handles no signal, and the command line has handlers."""

    def build(index: int) -> Path:
        child = subprocess.Popen(["sleep", "60"])
        (tmp_path / "child").write_text(str(child.pid))
        while True:
            time.sleep(60)

    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        assert "longer than 1 s" in gathered(1, build, limit_s=1.0)[0].error
    finally:
        signal.signal(signal.SIGTERM, before)
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_build_that_hangs_is_ended_though_others_end_all_the_time() -> None:
    """The limit is each build's own: neighbours that come and go do not prolong it."""

    def build(index: int) -> Path:
        time.sleep(60 if index == 0 else 0.4)
        return named(index)

    started = time.monotonic()
    found = gathered(12, build, limit_s=1.5)
    assert time.monotonic() - started < 12
    assert found[0].path is None
    assert all(found[i].path == named(i) for i in range(1, 12))


def test_a_reader_that_stops_early_leaves_no_process() -> None:
    def build(index: int) -> Path:
        time.sleep(0 if index == 0 else 60)
        return named(index)

    before, results = children(), build_all(3, build, workers=2)
    assert next(results)[0] == 0
    results.close()  # type: ignore[attr-defined]
    assert children() <= before


def test_an_error_in_one_line() -> None:
    assert last_line(ValueError("")) == "ValueError: no message"
    assert len(last_line(ValueError("x" * 1000))) == 300


@pytest.mark.parametrize(("count", "size", "workers"), [(0, 48, 2), (1, 48, 2), (7, 48, 2), (60, 48, 2), (500, 48, 4)])
def test_parts_cover_everything_evenly_and_take_neighbours_apart(count: int, size: int, workers: int) -> None:
    parts = deal(range(count), size, workers)
    assert sorted(i for part in parts for i in part) == list(range(count))
    lengths = [len(part) for part in parts]
    assert max(lengths, default=0) <= size
    assert max(lengths, default=0) - min(lengths, default=0) <= 1
    if count >= 8 * workers:
        assert len(parts) >= workers
        assert all(first % len(parts) == i for i, (first, *_) in enumerate(parts))


def test_a_single_build_that_crashes_does_not_take_the_client_along() -> None:
    """The last half of a batch that was halved is one probe alone: the very one that crashes the compiler."""
    pid = os.fork()
    if not pid:
        list(build_all(1, lambda index: os._exit(3), workers=2))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("early", [False, True])
def test_a_build_does_not_release_what_its_parent_holds(
    early: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage of the parent may hold a phone: released in the child, it would speak on the parent's connection."""
    setpgid = os.setpgid

    def collected(pid: int, group: int) -> None:  # the first that a child does; it may look for garbage at any time
        if gc.isenabled():
            gc.collect()
        setpgid(pid, group)

    class Held:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            (tmp_path / str(os.getpid())).touch()

    def build(index: int) -> Path:
        gc.collect()
        return tmp_path / "built"

    gc.collect()
    Held()
    if early:
        monkeypatch.setattr(os, "setpgid", lambda pid, group: setpgid(pid, group) if pid else collected(pid, group))
    assert [outcome.error for _, outcome in build_all(2, build, workers=1)] == ["", ""]
    assert [p.name for p in tmp_path.iterdir() if p.name != str(os.getpid())] == []
    gc.collect()
    assert (tmp_path / str(os.getpid())).exists()


def test_what_this_computer_lacks_is_no_fault_of_what_is_built() -> None:
    before = children()

    def full(index: int) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(WorkplaceError, match="nothing can be built here") as raised:
        gathered(2, full)
    assert "No space left" in raised.value.evidence and "df -h" in raised.value.next

    def without_a_compiler(index: int) -> Path:
        raise WorkplaceError("no compiler", "looked for g++", "apt-get install g++")

    with pytest.raises(WorkplaceError) as raised:
        gathered(3, without_a_compiler)
    assert (raised.value.evidence, raised.value.next) == ("looked for g++", "apt-get install g++")
    assert children() <= before


@pytest.mark.parametrize("error", [UserError("a region reads another's input"), FileNotFoundError(2, "no x.so")])
def test_other_errors_are_the_builds_own(error: Exception) -> None:
    def build(index: int) -> Path:
        raise error

    assert gathered(1, build)[0].failure == ErrorNo.COMPILE_HOST
