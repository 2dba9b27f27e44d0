"""The reference phone on this machine, for the lifetime of the client."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import msgspec

from tvm_codl.device.cores import phone_environment
from tvm_codl.device.reference import serve
from tvm_codl.device.spec import Direct
from tvm_codl.errors import DeviceError

START_S, STOP_S = 60.0, 3.0


class LocalPhone:
    """A phone's server for this process, and the address ``where`` it listens; ``folder`` holds its sessions' folders.

    The process and its folder are gone after the ``with`` block, even if this process is killed.  The block may be entered
    again.
    """

    where: Direct
    folder: Path

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts it, and does not wait.  Raises :class:`DeviceError` where there is no usable OpenCL."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"tvm-codl-{os.getpid()}-"))
        atexit.register(self.stop)
        try:
            # Port 0: the system picks a free one.
            self._start(0, f"local-{os.getpid()}-{secrets.token_hex(4)}")
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def __enter__(self) -> LocalPhone:
        """Starts it, where :meth:`start` has not, and waits until it listens.

        Raises :class:`DeviceError` with its own words if it does not start.
        """
        from tvm_codl.runtime import plugin

        plugin.path()
        if self._process is None:
            self.start()
        try:
            self._await_start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def revive(self) -> None:
        """Starts it at the same address, where it has ended.  Raises :class:`DeviceError` if it does not start."""
        if self._process is None or self._process.poll() is None:
            return
        self._start(self.where.port, self.where.key)
        self._await_start()

    def stop(self) -> None:
        """Ends the process and removes its folder, where it was started."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def _start(self, port: int, key: str) -> None:
        environment = {**os.environ, **phone_environment()}
        line = serve.command(port=port, port_end=port + 1, key=key, work_dir=self.folder, parent=os.getpid())
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                line, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True
            )

    @property
    def _log(self) -> Path:
        return self.folder / "phone.log"

    def read_log(self) -> str:
        """The last words of its log."""
        return "\n    ".join(self._log.read_text(errors="replace").strip().splitlines()[-6:])

    def _await_start(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise DeviceError(
                    f"the local phone ended as it started, with code {self._process.returncode}",
                    self.read_log(),
                    "tvm-codl doctor",
                )
            for line in self._log.read_text(errors="replace").splitlines():
                with contextlib.suppress(msgspec.MsgspecError):  # not the line that says where it listens
                    self.where = msgspec.json.decode(line, type=Direct)
                    return
            time.sleep(0.05)
        raise DeviceError(f"the local phone did not listen within {START_S:g} s", self.read_log(), "tvm-codl doctor")
