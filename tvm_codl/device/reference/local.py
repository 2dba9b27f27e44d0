"""A tracker and the reference phone on this machine, for the lifetime of the client."""

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

from tvm_codl.device.cores import phone_environment
from tvm_codl.device.reference import serve
from tvm_codl.device.spec import Tracker
from tvm_codl.device.tracker_client import tracker_summary
from tvm_codl.errors import DeviceError

START_S, STOP_S = 60.0, 3.0


class LocalPhone:
    """A tracker and a phone registered there; ``where`` is the phone's address."""

    def __init__(self) -> None:
        """Starts both.  Raises :class:`DeviceError` with the phone's own words if one does not start."""
        from tvm_codl.runtime import plugin

        plugin.path()
        self._folder = Path(tempfile.mkdtemp(prefix=f"tvm-codl-{os.getpid()}-"))
        self._processes: dict[str, subprocess.Popen[str]] = {}
        atexit.register(self.stop)
        try:
            with socket.create_server((serve.LOOPBACK, 0)) as listener:
                port = int(listener.getsockname()[1])
                self.where = Tracker(serve.LOOPBACK, port, f"local-{os.getpid()}-{secrets.token_hex(4)}")
                self._start_tracker(listener)
            self._start_server()
            self._await_registration()
        except BaseException:
            self.stop()
            raise

    def revive(self) -> None:
        """Restarts what has died, at the same address.  Raises :class:`DeviceError` if it does not start."""
        if all(process.poll() is None for process in self._processes.values()):
            return
        if self._processes["tracker"].poll() is not None:
            try:
                with socket.create_server((self.where.host, self.where.port)) as listener:
                    self._start_tracker(listener)
            except OSError as error:
                raise DeviceError("the local phone's tracker cannot start again", str(error)) from error
        if self._processes["phone"].poll() is not None:
            self._start_server()
        self._await_registration()

    def stop(self) -> None:
        """Ends both processes and removes their folder."""
        processes = list(self._processes.values())
        for process in processes:
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def _start_tracker(self, listener: socket.socket) -> None:
        line = [sys.executable, "-m", "tvm_codl.device.reference.tracker", str(listener.fileno()), str(os.getpid())]
        self._start("tracker", line, (listener.fileno(),))

    def _start_server(self) -> None:
        tracker = f"{self.where.host}:{self.where.port}"
        # Port 0: the system picks a free one.
        line = serve.command(port=0, key=self.where.key, tracker=tracker, work_dir=self._folder, parent=os.getpid())
        self._start("phone", line)

    def _start(self, name: str, line: list[str], keep: tuple[int, ...] = ()) -> None:
        environment = {**os.environ, **phone_environment()}
        with (self._folder / f"{name}.log").open("w") as file:
            self._processes[name] = subprocess.Popen(
                line, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, text=True, pass_fds=keep
            )

    def _read_log(self, name: str) -> str:
        words = (self._folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return "\n    ".join(words[-6:])

    def _await_registration(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise DeviceError(
                        f"the local phone's {name} ended as it started, with code {process.returncode}",
                        self._read_log(name),
                        "tvm-codl doctor",
                    )
            with contextlib.suppress(DeviceError):
                if self.where.key in tracker_summary(self.where.host, self.where.port):
                    return
            time.sleep(0.05)
        raise DeviceError(
            f"the local phone did not register within {START_S:g} s", self._read_log("phone"), "tvm-codl doctor"
        )


@contextlib.contextmanager
def local_phone() -> Iterator[LocalPhone]:
    """A phone for this process.  Both processes and their folder are gone afterwards, even if this process is killed.

    Raises :class:`DeviceError` with the phone's own words if it does not start.
    """
    phone = LocalPhone()
    try:
        yield phone
    finally:
        phone.stop()
