"""``tvm-codl device`` against the stand-in for adb: what it lists, sends, checks and says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.phone.device_commands import Cli, free_port
from tests.phone.servers import tvm_process
from tests.phone.stand_in_adb import StandInAdb
from tests.phone.stand_in_phone import Phone
from tvm_codl.device import cpu
from tvm_codl.device.adb.connection import AdbServer
from tvm_codl.errors import DeviceError


def test_ls_shows_the_phone_and_its_state(adb: StandInAdb, phone: Phone, tmp_path: Path, cli: Cli) -> None:
    adb.phones.append(Phone(tmp_path / "second", "0123456789ABCDEF", "unauthorized"))
    code, out, _ = cli("ls", "--json")
    assert code == 0
    assert json.loads(out) == [
        {"serial": "R58M123ABC", "model": "Stand in", "state": "device", "key": "", "where": "adb"},
        {"serial": "0123456789ABCDEF", "model": "", "state": "unauthorized", "key": "", "where": "adb"},
    ]
    phone.model = "[/red]\033[2J"
    code, out, _ = cli("ls")
    assert code == 0 and "R58M123ABC" in out and "unauthorized" in out and "[/red]" in out and "\033" not in out


def test_ls_asks_tracker_and_proxy_too_and_goes_on_without_adb(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
    with tvm_process("rpc_tracker") as (_, tracker), tvm_process("rpc_proxy") as (_, proxy):
        code, out, err = cli(
            "ls",
            "--json",
            "--rpc-tracker",
            f"127.0.0.1:{tracker}",
            "--rpc-proxy",
            f"127.0.0.1:{proxy}",
            "--rpc-key",
            "a",
        )
    assert code == 0, err
    assert "no adb server" in err
    place = f"proxy 127.0.0.1:{proxy}"
    assert json.loads(out) == [{"serial": "", "model": "", "state": "busy or not there", "key": "a", "where": place}]


def test_no_adb_server_is_said_and_none_is_started(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``adbutils`` would run an adb program; this one would leave a mark."""
    mark = tmp_path / "adb ran"
    (tmp_path / "adb").write_text(f'#!/bin/sh\ntouch "{mark}"\n')
    (tmp_path / "adb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(tmp_path / "adb"))
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
    for words in (("ls",), ("info",), ("stop",), ("shell-check",)):
        code, out, err = cli(*words)
        assert (code, out) == (3, "")
        assert "no adb server" in err and "adb start-server" in err
    assert not mark.exists()


def test_what_is_no_adb_server_is_said_to_be_none(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with tvm_process("rpc_proxy") as (_, port):
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        code, _, err = cli("ls")
    assert code == 3 and "is no adb server" in err
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "5037; rm -rf")
    assert cli("ls")[0] == 2


def test_errors_name_the_next_command(adb: StandInAdb, phone: Phone, tmp_path: Path, cli: Cli) -> None:
    adb.phones.append(Phone(tmp_path / "second", "other"))
    code, _, err = cli("info")
    assert code == 2 and "which phone?" in err and "--serial R58M123ABC" in err
    code, _, err = cli("info", "--serial", "nobody")
    assert code == 3 and "no phone 'nobody'" in err and "tvm-codl device ls" in err
    for state, remedy in (("unauthorized", "allow USB debugging"), ("offline", "adb reconnect offline")):
        adb.phones[:] = [Phone(tmp_path / state, "third", state)]
        code, _, err = cli("info")
        assert code == 3 and state in err and remedy in err
    adb.phones[:] = []
    code, _, err = cli("info")
    assert code == 3 and "no phone on adb" in err and "adb devices -l" in err


@pytest.mark.usefixtures("either_shell")
def test_push_sends_once_makes_executable_and_repairs(
    adb: StandInAdb, phone: Phone, folder: str, tmp_path: Path, cli: Cli
) -> None:
    server, library = tmp_path / "built", tmp_path / "libtvm_runtime.so"
    server.write_bytes(os.urandom(300_000))
    library.write_bytes(os.urandom(70_000))
    words = ("push", "--server", server, "--library", library, "--folder", folder, "--json")
    code, out, err = cli(*words)
    assert code == 0, err
    assert [one["sent"] for one in json.loads(out)] == [True, True]
    for name, source in (("tvm_codl_server", server), ("libtvm_runtime.so", library)):
        there = Path(folder, name)
        assert there.read_bytes() == source.read_bytes() and there.stat().st_mode & 0o777 == 0o755
    phone.sent.clear()
    assert [one["sent"] for one in json.loads(cli(*words)[1])] == [False, False] and not phone.sent
    Path(folder, "libtvm_runtime.so").write_bytes(b"broken")
    assert [one["sent"] for one in json.loads(cli(*words)[1])] == [False, True]
    assert Path(folder, "libtvm_runtime.so").read_bytes() == library.read_bytes()


@pytest.mark.usefixtures("either_shell")
def test_a_transfer_that_is_cut_off_leaves_the_old_file(
    adb: StandInAdb, phone: Phone, folder: str, tmp_path: Path, cli: Cli
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"old")
    new.write_bytes(os.urandom(9000))
    assert cli("push", "--server", old, "--folder", folder)[0] == 0
    adb.room = 5000
    code, _, err = cli("push", "--server", new, "--folder", folder)
    assert code == 3 and "did not arrive whole" in err
    assert Path(folder, "tvm_codl_server").read_bytes() == b"old"


def test_push_refuses_what_does_not_fit(adb: StandInAdb, phone: Phone, folder: str, tmp_path: Path, cli: Cli) -> None:
    good = tmp_path / "server"
    good.write_bytes(b"x")
    odd = tmp_path / "a b$(touch pwned).so"
    odd.write_bytes(b"x")
    assert cli("push", "--server", tmp_path / "none", "--folder", folder)[0] == 1
    assert cli("push", "--server", good, "--library", odd, "--folder", folder)[0] == 1
    for bad in ("relative", "/tmp/../etc", "/tmp/$(id)", "/tmp/a b", "/"):
        assert cli("push", "--server", good, "--folder", bad)[0] == 2
    outside = tmp_path / "outside"
    code, _, err = cli("push", "--server", good, "--folder", outside)
    assert code == 3 and "cannot be sent" in err
    assert not phone.folder.joinpath("pwned").exists()


@pytest.mark.usefixtures("either_shell")
@pytest.mark.parametrize(
    "word", ["", "a b", "$(touch pwned)", "`touch pwned`", "'; touch pwned; '", '"', "\\", "a\nb", "-n", "é"]
)
def test_words_reach_the_phone_as_they_are(adb: StandInAdb, phone: Phone, word: str) -> None:
    one = AdbServer().phone()
    assert one.read('printf "<%s>" "$1"', word) == f"<{word}>"
    assert not phone.folder.joinpath("pwned").exists()
    assert one.run("exit 7").code == 7


def test_a_phone_that_says_too_much_or_nothing_is_left(adb: StandInAdb, phone: Phone) -> None:
    one = AdbServer().phone()
    with pytest.raises(DeviceError, match="says too much"):
        one.run("exec yes")
    with pytest.raises(DeviceError, match="does not answer"):
        one.run("exec sleep 5", timeout_s=1)
    with pytest.raises(DeviceError, match="broke off"):
        one.run("kill -9 $PPID")
    assert one.read("echo still there") == "still there\n"


def test_the_stand_in_is_one_to_adbutils_too(adb: StandInAdb, phone: Phone) -> None:
    """What our own code does not use of the protocol: version 2 of the shell, files to and fro."""
    device = AdbServer().phone().adb
    done = device.shell2("echo out; exit 3", v2=True)
    assert (done.stdout, done.returncode) == ("out\n", 3)
    device.sync.push(b"some bytes", f"{phone.folder}/file", mode=0o640)
    assert device.sync.read_bytes(f"{phone.folder}/file") == b"some bytes"
    (entry,) = device.sync.list(str(phone.folder))
    assert (entry.path, entry.size, entry.mode & 0o777) == ("file", 10, 0o640)


@pytest.mark.usefixtures("either_shell")
def test_info_from_the_shell_alone(adb: StandInAdb, phone: Phone, folder: str, tmp_path: Path, cli: Cli) -> None:
    phone.tell("prop.ro.product.cpu.abi", "arm64-v8a")
    code, out, err = cli("info", "--folder", folder)
    assert code == 0 and "device start" in err
    told = yaml.safe_load(out)
    assert (told["name"], told["cpu_name"], told["arch"]) == ("Example Stand-in 1", "EX100", "aarch64")
    assert (told["gpu_name"], told["gpu_target"]) == ("Adreno (TM) 640", "opencl -device=adreno")
    assert told["cpu_target"].startswith("llvm -mtriple=aarch64-linux-android -mattr=+neon")
    assert "unified_memory" not in told and "build_id" not in told
    assert [tuple(one["cores"]) for one in told["clusters"]] == [one.cores for one in cpu.clusters()]
    assert len(told["caches"]) == len(cpu.caches()) if "caches" in told else not cpu.caches()
    code, _, err = cli("info", "--folder", folder, "--codl")
    assert code == 4 and "device start" in err
    file = tmp_path / "soc.yaml"
    file.write_text("compute_units: 2\nkernel_wave_size: 64\n")
    code, out, _ = cli("info", "--folder", folder, "--soc", file)
    assert code == 0 and (yaml.safe_load(out)["compute_units"], yaml.safe_load(out)["kernel_wave_size"]) == (2, 64)
    assert cli("info", "--folder", folder, "--codl", "--soc", file)[1] == file.read_text()
    file.write_text("compute_units: few\n")
    assert cli("info", "--folder", folder, "--soc", file)[0] == 1


@pytest.mark.usefixtures("either_shell")
def test_shell_check(
    adb: StandInAdb, phone: Phone, folder: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = cli("shell-check", "--folder", folder, "--json")
    found = {one["name"]: one for one in json.loads(out)}
    assert code == 0 and [n for n, one in found.items() if not one["ok"]] == ["libOpenCL.so"]
    assert all(words in found["libOpenCL.so"]["remedy"] for words in ("only the phone's CPU", "find /vendor"))
    assert found["temperature"]["found"] == "battery 28.7 °C, cool"
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    (libraries / "libOpenCL-pixel.so").touch()
    monkeypatch.setattr("tvm_codl.device.adb.check.PIXEL", str(libraries / "libOpenCL-pixel.so"))
    code, out, _ = cli("shell-check", "--folder", folder)
    assert code == 0 and "note  libOpenCL.so" in out and "libOpenCL-pixel.so, which the runtime cannot use" in out
    (libraries / "libOpenCL.so").touch()
    phone.environment["LD_LIBRARY_PATH"] = str(libraries)
    code, out, _ = cli("shell-check", "--folder", folder)
    assert code == 0 and f"ok    libOpenCL.so: {libraries}/libOpenCL.so" in out and "FAIL" not in out
    assert not list(Path(folder).iterdir())
    phone.tell("dumpsys.battery", "  temperature: 461")
    phone.tell("settings.low_power", "1")
    code, out, _ = cli("shell-check", "--folder", folder)
    assert code == 0 and "note  temperature: battery 46.1 °C, hot" in out and "low_power 0" in out
    phone.tell("prop.ro.product.cpu.abilist", "x86_64")
    Path(folder).rmdir()
    Path(folder).touch()
    code, out, _ = cli("shell-check", "--folder", folder)
    assert code == 3 and "FAIL  arm64-v8a: x86_64" in out and "FAIL  folder" in out


@pytest.mark.usefixtures("either_shell")
def test_install_shows_versions_and_grants_nothing(
    adb: StandInAdb, phone: Phone, folder: str, tmp_path: Path, cli: Cli
) -> None:
    apk = tmp_path / "app release.apk"
    apk.write_bytes(b"PK\x03\x04" + os.urandom(5000))
    words = ("install", "--apk", apk, "--folder", folder)
    code, out, err = cli(*words)
    assert code == 0 and out == "org.tvmcodl.rpc 1.2 (7)\n", err
    assert (phone.files / "installed.apk").read_bytes() == apk.read_bytes()
    assert not list(Path(folder).iterdir())
    assert json.loads(cli(*words, "--json")[1])["before"] == "1.2 (7)"
    assert not any(" -g" in line or "pm grant" in line or "uninstall" in line for line in phone.commands)
    phone.tell("pm.refuses", "Failure [INSTALL_FAILED_UPDATE_INCOMPATIBLE: signatures do not match]")
    code, _, err = cli(*words)
    assert code == 3 and "adb uninstall org.tvmcodl.rpc" in err
    apk.write_bytes(b"no zip")
    assert cli(*words)[0] == 1
    assert cli(*words, "--package", "a; rm")[0] == 2
