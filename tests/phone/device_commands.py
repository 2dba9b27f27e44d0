"""``tvm-codl device start`` and ``forward`` for as long as a test needs them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.phone.stand_in_adb import StandInAdb
from tests.phone.stand_in_phone import Phone

Cli = Callable[..., tuple[int, str, str]]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(cli: Cli, phone: Phone, folder: str, server_file: Path, *words: object) -> Iterator[dict[str, Any]]:
    code, _, err = cli("push", "--server", server_file, "--folder", folder)
    assert code == 0, err
    code, out, err = cli("start", "--folder", folder, "--wait", 120, "--json", *words)
    assert code == 0, err
    serving = json.loads(out)
    try:
        yield {**serving, "next": err}
    finally:
        assert cli("stop", "--folder", folder)[0] == 0
    assert not Path("/proc", str(serving["pid"]), "exe").exists()
    assert {path.name for path in Path(folder).iterdir()} == {"tvm_codl_server", "server.log"}


@contextlib.contextmanager
def forwarding(adb: StandInAdb, cache: Path, *words: object) -> Iterator[subprocess.Popen[str]]:
    """``tvm-codl device forward`` as a process of its own, which has set up what it was told to."""
    line = [sys.executable, "-m", "tvm_codl", "device", "forward", "--json", *map(str, words)]
    environment = {**os.environ, "ANDROID_ADB_SERVER_PORT": str(adb.port), "TVM_CODL_CACHE": str(cache)}
    process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = ""
        for row in process.stderr:
            said += row
            if "until interrupted" in row:
                break
        else:
            raise AssertionError(said)
        yield process
    finally:
        process.kill()
        process.wait(10)
