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
from pathlib import Path

from tvm_codl.device.cores import phone_environment
from tvm_codl.device.reference import serve
from tvm_codl.device.spec import Tracker
from tvm_codl.device.tracker_client import tracker_summary
from tvm_codl.errors import DeviceError

START_S, STOP_S = 60.0, 3.0


class LocalPhone:
    """A tracker and a phone registered there, for this process; ``where`` is the phone's address.

    ``folder`` holds the sessions' folders.

    Both processes and their folder are gone after the ``with`` block, even if this process is killed.
    """

    where: Tracker

    def __init__(self) -> None:
        """Starts both.  Raises :class:`DeviceError` with the phone's own words if one does not start."""
        from tvm_codl.runtime import plugin

        plugin.path()
        self.folder = Path(tempfile.mkdtemp(prefix=f"tvm-codl-{os.getpid()}-"))
        self._processes: dict[str, subprocess.Popen[str]] = {}
        atexit.register(self.stop)
        try:
            # Port 0: the system picks a free one.
            self._start_tracker(0, f"local-{os.getpid()}-{secrets.token_hex(4)}")
            self.revive()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> LocalPhone:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def revive(self) -> None:
        """Starts what does not run, at the same address.  Raises :class:`DeviceError` if it does not start."""
        if all(self._is_running(name) for name in ("tracker", "phone")):
            return
        if not self._is_running("tracker"):
            try:
                self._start_tracker(self.where.port, self.where.key)
            except OSError as error:
                raise DeviceError("the local phone's tracker cannot start again", str(error)) from error
        if not self._is_running("phone"):
            tracker = f"{self.where.host}:{self.where.port}"
            line = serve.command(port=0, key=self.where.key, tracker=tracker, work_dir=self.folder, parent=os.getpid())
            self._start("phone", line)
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
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def _is_running(self, name: str) -> bool:
        return name in self._processes and self._processes[name].poll() is None

    def _start_tracker(self, port: int, key: str) -> None:
        with socket.create_server((serve.LOOPBACK, port)) as listener:
            self.where = Tracker(serve.LOOPBACK, int(listener.getsockname()[1]), key)
            line = [sys.executable, "-m", "tvm_codl.device.reference.tracker", str(listener.fileno()), str(os.getpid())]
            self._start("tracker", line, (listener.fileno(),))

    def _start(self, name: str, line: list[str], keep: tuple[int, ...] = ()) -> None:
        environment = {**os.environ, **phone_environment()}
        with (self.folder / f"{name}.log").open("w") as file:
            self._processes[name] = subprocess.Popen(
                line, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, text=True, pass_fds=keep
            )

    def read_log(self) -> str:
        """The last words of the phone's log."""
        return self._read_log("phone")

    def _read_log(self, name: str) -> str:
        words = (self.folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
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
