"""A tracker and the reference phone on this machine, for as long as the client lives."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tvm_codl.device import serve
from tvm_codl.device.ask_tracker import tracker_summary
from tvm_codl.device.cores import phone_environment
from tvm_codl.device.spec import Tracker
from tvm_codl.errors import DeviceError

START_S, STOP_S = 60.0, 3.0


@contextlib.contextmanager
def local_phone() -> Iterator[Tracker]:
    """Where to find a phone of one's own.  Both processes and their folder are gone afterwards, and also end by
    themselves when this process is killed.  Raises :class:`DeviceError` with the phone's own words if it does not start.
    """
    from tvm_codl.runtime import plugin

    plugin.path()
    environment = {**os.environ, **phone_environment()}
    folder = Path(tempfile.mkdtemp(prefix=f"tvm-codl-{os.getpid()}-"))
    processes: list[subprocess.Popen[str]] = []

    def stop() -> None:
        for process in processes:
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    try:
        with socket.create_server((serve.LOOPBACK, 0)) as listener:
            where = Tracker(serve.LOOPBACK, listener.getsockname()[1], f"local-{os.getpid()}-{secrets.token_hex(4)}")
            line = [sys.executable, "-m", "tvm_codl.device.tracker", str(listener.fileno()), str(os.getpid())]
            processes.append(_start(line, environment, folder / "tracker.log", (listener.fileno(),)))
        # From port 0 the system picks a free one.
        line = serve.command(
            port=0, key=where.key, tracker=f"{where.host}:{where.port}", work_dir=folder, parent=os.getpid()
        )
        processes.append(_start(line, environment, folder / "phone.log"))
        _until_registered(where, processes, folder)
        yield where
    finally:
        stop()
        atexit.unregister(stop)


def _start(
    line: list[str], environment: dict[str, str], log: Path, keep: tuple[int, ...] = ()
) -> subprocess.Popen[str]:
    with log.open("w") as file:
        return subprocess.Popen(
            line, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, text=True, pass_fds=keep
        )


def _until_registered(where: Tracker, processes: list[subprocess.Popen[str]], folder: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        for process, log in zip(processes, ("tracker.log", "phone.log"), strict=True):
            if process.poll() is not None:
                words = (folder / log).read_text(errors="replace").strip().splitlines()
                raise DeviceError(
                    f"the local phone's {log.removesuffix('.log')} ended as it started, with code {process.returncode}",
                    "\n    ".join(words[-6:]),
                    "tvm-codl doctor",
                )
        with contextlib.suppress(DeviceError):
            if where.key in tracker_summary(where.host, where.port):
                return
        time.sleep(0.05)
    words = (folder / "phone.log").read_text(errors="replace").strip().splitlines()
    raise DeviceError(
        f"the local phone did not register within {START_S:g} s", "\n    ".join(words[-6:]), "tvm-codl doctor"
    )
