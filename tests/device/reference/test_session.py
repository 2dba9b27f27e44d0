from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tvm_codl.device.reference import server, session
from tvm_codl.device.reference.session_log import KEPT, SessionLog


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


def never(sockets: list[Any], seconds: float) -> list[Any]:
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
        assert server._await_end(child, near, never, 0.01, SessionLog()) == "was killed at its time limit"
        assert far.recv(1) == b"", "the client sees the end, whoever else holds the connection"
        assert not session.end(child, tmp_path / "session", patience_s=0.05)
    assert not (tmp_path / "session").exists()
    os.kill(child, signal.SIGKILL)
    assert session.end(child, tmp_path / "session", patience_s=10)
    assert session.has_ended(child), "and before"


def test_the_last_lines_of_a_sessions_log_are_kept(capfd: pytest.CaptureFixture[str]) -> None:
    words = SessionLog()
    assert words.last_lines == ()
    words.read()
    text = "".join(f"line {i}\n" for i in range(KEPT + 3)) + "\n  \nan unfinished \xff\n".replace("\xff", "one")
    os.write(words.writer, text.encode() + b"\xff and")
    words.read()
    os.write(words.writer, b" the end")
    words.close_writer()
    words.read()
    assert words.last_lines[0] == "line 5" and len(words.last_lines) == KEPT
    assert words.last_lines[-2:] == ("an unfinished one", "\ufffd and the end")
    words.close()
    assert capfd.readouterr().err.startswith("line 0\n"), "the server's log has it too"
