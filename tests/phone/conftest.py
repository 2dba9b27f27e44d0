"""What the tests of ``tvm-codl device`` share: a phone behind the stand-in for adb, and the command line."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.phone.device_commands import Cli
from tests.phone.stand_in_adb import StandInAdb, stand_in_adb
from tests.phone.stand_in_phone import Phone
from tvm_codl.cli.main import run

#: Stands for the native server: the reference phone's, on the stand-in phone's loopback.
SERVER = """#!{python}
import os, sys
from tvm_codl.device.cores import phone_environment
words = [word.replace("127.0.0.1", "127.0.0.2") for word in sys.argv[1:]]
line = [sys.executable, "-m", "tvm_codl.device.reference.server", *words]
os.execve(line[0], line, {{**os.environ, **phone_environment()}})
"""


@pytest.fixture(scope="session", autouse=True)
def _no_pause(no_pause: None) -> None:
    pass


@pytest.fixture()
def phone(tmp_path: Path) -> Phone:
    return Phone(tmp_path / "phone")


@pytest.fixture(params=["this machine's shell", "Android's shell"])
def either_shell(request: pytest.FixtureRequest, phone: Phone) -> None:
    """Runs a test with both; Android's is there after docker/install/android_shell.sh."""
    if request.param == "Android's shell":
        mksh, toybox = shutil.which("mksh"), shutil.which("toybox")
        if not mksh or not toybox:
            pytest.skip("mksh and toybox are not installed")
        phone.use_androids_own(mksh, toybox)


@pytest.fixture()
def adb(phone: Phone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInAdb]:
    with stand_in_adb(phone) as server:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(server.port))
        monkeypatch.delenv("ANDROID_ADB_SERVER_HOST", raising=False)
        monkeypatch.delenv("ANDROID_SERIAL", raising=False)
        monkeypatch.setattr("tvm_codl.device.adb.forward._folder", lambda: tmp_path / "forwards")
        yield server


@pytest.fixture()
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*words: object) -> tuple[int, str, str]:
        code = run(["device", *map(str, words)])
        written = capsys.readouterr()
        return code, written.out, written.err

    return call


@pytest.fixture()
def folder(phone: Phone) -> str:
    return str(phone.folder / "tvm_codl")


@pytest.fixture()
def server_file(tmp_path: Path) -> Path:
    path = tmp_path / "tvm_codl_server.py"
    path.write_text(SERVER.format(python=sys.executable))
    path.chmod(0o755)
    return path
