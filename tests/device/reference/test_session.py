from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tvm_codl.device.reference import server, session


@pytest.fixture
def child() -> Iterator[int]:
    """A process that only waits."""
    pid = os.fork()
    if pid == 0:
        while True:
            time.sleep(60)
    yield pid
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def never(sockets: list[socket.socket], seconds: float) -> list[socket.socket]:
    return []


def deaf(number: int, signal_number: int) -> None:
    """What a kill does to a process that a driver holds."""


def test_a_session_that_does_not_die_is_left_behind(
    child: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = socket.socketpair()
    (tmp_path / "session").mkdir()
    with near, far, monkeypatch.context() as patched:
        patched.setattr(os, "kill", deaf)
        patched.setattr(os, "killpg", deaf)
        assert server._await_end(child, near, never, 0.01) == "was killed at its time limit"
        assert far.recv(1) == b"", "the client sees the end, whoever else holds the connection"
        assert not session.end(child, tmp_path / "session", patience_s=0.05)
    assert not (tmp_path / "session").exists()
    os.kill(child, signal.SIGKILL)
    assert session.end(child, tmp_path / "session", patience_s=10)
    assert session.has_ended(child), "and before"
