"""A command that is told to stop says so in one line, ends within seconds, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tvm_codl.paths import cache_dir

#: Longer than the grace, by far: this machine is shared.
PATIENCE_S = 60.0

HASHES = """
while True:
    try:
        print("ready", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2**31 - 1)
    except BaseException:
        pass
"""
SWALLOWS = """
while True:
    try:
        print("ready", flush=True)
        time.sleep(60)
    except BaseException:
        pass
"""

RELEASES = """
import os, threading, time
import psutil
from tvm import rpc
from tvm_codl.cli.stop import Stop, Stopped
from tvm_codl.device.reference.local import LocalPhone

def come_back():
    time.sleep(0.5)
    os.kill(os.getpid(), 15)
    time.sleep(1)
    back.append(True)
    for process in phone_processes:
        process.resume()

back = []
Stop().catch()
with LocalPhone() as phone:
    session = rpc.connect(phone.where.host, phone.where.port, phone.where.key)
    function = session.get_function("runtime.config_threadpool")
    phone_processes = psutil.Process().children(recursive=True)
    for process in phone_processes:
        process.suspend()
    threading.Thread(target=come_back).start()
    try:
        del function
        time.sleep(60)
    except Stopped:
        print("stopped behind the release" if back else "stopped while it waits")
"""


@pytest.mark.parametrize(("number", "words"), [(signal.SIGTERM, "measuring"), (signal.SIGINT, "building")])
def test_a_bench_is_stopped(tmp_path: Path, number: signal.Signals, words: str) -> None:
    temporary, cache = tmp_path / "temporary", tmp_path / "cache"
    temporary.mkdir()
    cache.mkdir()
    # Nothing is built yet but the native part.
    (cache / "native").symlink_to(cache_dir() / "native")
    line = [
        sys.executable,
        "-m",
        "tvm_codl",
        "bench",
        "zoo:small",
        "--budget",
        "3",
        "--records",
        str(tmp_path / "r.sqlite"),
    ]
    own = {**os.environ, "TMPDIR": str(temporary), "TVM_CODL_CACHE": str(cache)}
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=own)
    assert process.stderr is not None
    assert any(words in line for line in process.stderr)
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    rest = process.stderr.read()
    assert process.wait(PATIENCE_S) == 128 + number
    assert rest.splitlines()[-1].startswith(f"stopped by {number.name}; ") and "Traceback" not in rest
    assert not psutil.wait_procs(started, PATIENCE_S)[1]
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("work", [HASHES, SWALLOWS])
def test_what_sees_no_signal_is_ended(work: str) -> None:
    """Native code that does not return, and code that drops the exception."""
    program = f"import hashlib, time\nfrom tvm_codl.cli.stop import Stop\nStop().catch()\n{work}"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM and said.count("stopped by SIGTERM") == 1


def test_a_signal_waits_until_a_remote_object_is_released() -> None:
    """TVM asks the phone to release it, and aborts where an exception comes meanwhile."""
    done = subprocess.run([sys.executable, "-c", RELEASES], capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "stopped behind the release\n"), done.stderr
