"""Real server processes for the tests: the reference phone, TVM's tracker and TVM's proxy."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from tvm_codl.device.cores import phone_environment
from tvm_codl.device.reference.serve import command
from tvm_codl.device.spec import Direct

START_S = 30.0


@dataclass
class Server:
    """A phone's server process; ``about`` is the line that it prints when it serves."""

    process: subprocess.Popen[str]
    about: dict[str, Any]
    log: Path

    @property
    def port(self) -> int:
        return int(self.about["port"])

    def session_pids(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    def wait_for(self, words: str, times: int = 1) -> None:
        wait_until(lambda: self.log.read_text().count(words) >= times, f"{words!r} in:\n{self.log.read_text()}")


def at(server: Server, key: str = "codl") -> Direct:
    return Direct("127.0.0.1", server.port, key)


def wait_until(condition: Any, what: str, seconds: float = START_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def gone(*pids: int) -> bool:
    """Whether these processes have ended; one that only waits to be reaped has."""
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return False
    return True


@contextlib.contextmanager
def phone_server(folder: Path, **options: object) -> Iterator[Server]:
    log = folder / "phone.log"
    environment = {**os.environ, **phone_environment(), "TMPDIR": str(folder)}
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command(**options), env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=folder
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield Server(process, json.loads(line), log)
    finally:
        process.terminate()
        process.wait(10)
        print(log.read_text(), file=sys.stderr)  # pytest shows it where the test fails


@contextlib.contextmanager
def tvm_process(module: str, port: int = 0) -> Iterator[tuple[str, int]]:
    """``python -m tvm.exec.rpc_tracker`` or ``rpc_proxy``, on a free port unless one is given."""
    with tempfile.TemporaryFile("w+") as log:
        process, port = _listening(module, port, log)
        try:
            yield "127.0.0.1", port
        finally:
            _kill(process)
            log.seek(0)
            print(log.read(), file=sys.stderr)


def _listening(module: str, port: int, log: IO[str]) -> tuple[subprocess.Popen[bytes], int]:
    """That process, and the port at which it listens itself: between the choice of a free port and its start another
    process may have taken it."""
    for _ in range(3):
        process, chosen = _launched(module, port or _free_port(), log)
        if process.poll() is None:
            return process, chosen
    log.seek(0)
    raise AssertionError(f"{module} ended three times:\n{log.read()}")


def _launched(module: str, port: int, log: IO[str]) -> tuple[subprocess.Popen[bytes], int]:
    """That process and its port, once it listens there or has ended."""
    line = [sys.executable, "-m", f"tvm.exec.{module}", "--host", "127.0.0.1"]
    line += ["--port", str(port), "--port-end", str(port + 1)]
    if module == "rpc_proxy":
        line += ["--web-port", "0"]  # else each proxy wants port 8888 too, and the second one ends
    process = subprocess.Popen(line, stdout=log, stderr=log)
    try:
        wait_until(lambda: _listens(process, port) or process.poll() is not None, f"{module} on port {port}")
    except BaseException:
        _kill(process)
        raise
    return process, port


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _tree(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        return [*root.children(recursive=True), root]
    return []


def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return any(
            at.status == psutil.CONN_LISTEN and at.laddr.port == port
            for one in _tree(process)
            for at in one.net_connections("inet")
        )
    return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    """TVM's own launchers leave a worker process behind when they are stopped."""
    for one in _tree(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait(10)
