"""``--local``: a phone of one's own, gone with its client whatever happens to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.phone.servers import gone, wait_until
from tvm_codl.device.connect import connect
from tvm_codl.device.reference.local import LocalPhone
from tvm_codl.errors import DeviceError, UserError

CLIENT = """
import json, psutil, sys, time
from tvm_codl.device.connect import connect
with connect() as phone:
    pids = [c.pid for c in psutil.Process().children(recursive=True)]
    print(json.dumps(pids), flush=True)
    {then}
"""


def left_behind(folder: Path) -> list[str]:
    return [p.name for p in folder.glob("tvm-codl-*")]


def test_phone_is_there_and_then_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # Other tests' workers may still be there, and stay for a while.
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with connect() as phone:
        assert phone.profile.unified_memory
        pids = [child.pid for child in psutil.Process().children(recursive=True) if child.pid not in before]
        assert len(pids) >= 2  # server, session
        assert left_behind(tmp_path)
    wait_until(lambda: gone(*pids), f"{pids} end", 30)
    assert not left_behind(tmp_path)


def test_a_file_is_where_the_session_reads_it(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_bytes(b"some words")
    with connect() as phone:
        for _ in range(2):
            phone.send(words, "sent")
            assert bytes(phone.remote.download("sent")) == b"some words"
            phone.reopen(20.0)


def test_an_error_in_the_clients_block_also_takes_the_phone_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), connect():
        raise KeyboardInterrupt
    assert not left_behind(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_phone_ends_with_a_client_that_is_killed(tmp_path: Path, number: int) -> None:
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT.format(then="time.sleep(60)")],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert client.stdout is not None
    pids = json.loads(client.stdout.readline())
    assert left_behind(tmp_path)
    client.send_signal(number)
    client.wait(60)
    wait_until(lambda: gone(*pids), f"{pids} end", 30)
    wait_until(lambda: not left_behind(tmp_path), "the folder is removed", 30)


def test_client_that_exits_inside_the_block(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT.format(then="sys.exit(7)")],
        capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 7
    assert gone(*json.loads(done.stdout))
    assert not left_behind(tmp_path)


def test_phone_that_dies_in_the_middle() -> None:
    with pytest.raises(DeviceError, match="went away"), connect() as phone:
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # another test's, which ends just now
                if "tvm_codl.device.reference.server" in " ".join(child.cmdline()):
                    child.kill()
        phone.remote.get_function("codl.profile")()


def test_a_soc_file_replaces_what_the_phone_reports(tmp_path: Path) -> None:
    file = tmp_path / "soc.yaml"
    file.write_text("compute_units: 77\nmax_work_group_size: 384\n")
    with connect(soc=file) as phone:
        assert (phone.profile.compute_units, phone.profile.max_work_group) == (77, 384)
        assert phone.profile.global_mem_cache_size > 0
        phone.reopen(30)
        assert phone.profile.compute_units == 77
    with pytest.raises(UserError), connect(soc=tmp_path / "none.yaml"):
        pass


def test_two_clients_have_a_phone_each() -> None:
    with LocalPhone() as first, LocalPhone() as second:
        assert first.where.key != second.where.key
        assert first.where.port != second.where.port


def test_a_phone_that_is_started_early_is_the_one_that_is_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    early = LocalPhone()
    early.start()
    folder = early.folder
    with connect(early) as phone:
        assert early.folder == folder
        assert phone.profile.unified_memory
    assert not left_behind(tmp_path)
    early.stop()  # it has ended
    with connect(early):  # and starts again
        assert early.folder != folder
    assert not left_behind(tmp_path)


def test_server_that_cannot_start_shows_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_CODL_PLUGIN", "/nonexistent/libplugin.so")
    with pytest.raises(DeviceError, match="ended as it started") as error, connect():
        pass
    assert "/nonexistent/libplugin.so" in error.value.evidence
