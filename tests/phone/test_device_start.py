"""A server on the phone, started and reached through adb: a real server process, a real tracker, a real proxy."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import yaml

from tests.phone.device_commands import Cli, forwarding, free_port, started
from tests.phone.servers import tvm_process, wait_until
from tests.phone.stand_in_adb import StandInAdb
from tests.phone.stand_in_phone import Phone
from tvm_codl.cli.device import next_command
from tvm_codl.device import cpu
from tvm_codl.device.adb.connection import AdbServer
from tvm_codl.device.adb.forward import Forwarding, Mapping
from tvm_codl.device.adb.server import RunningServer
from tvm_codl.device.connect import connect
from tvm_codl.device.spec import Proxy, Tracker


@pytest.mark.usefixtures("either_shell")
def test_start_listening_info_and_stop(adb: StandInAdb, phone: Phone, folder: str, server_file: Path, cli: Cli) -> None:
    """Also: a second start is refused, and nothing that was set up for a moment stays."""
    port = free_port()
    with started(cli, phone, folder, server_file, "--port", port, "--key", "pixel") as serving:
        assert serving["port"] == port and f"device forward --serial {phone.serial} --port {port}" in serving["next"]
        code, _, err = cli("start", "--folder", folder, "--port", port)
        assert code == 1 and "runs on R58M123ABC already" in err
        code, out, err = cli("info", "--folder", folder)
        assert code == 0, err
        told = yaml.safe_load(out)
        assert told["compute_units"] > 0 and told["build_id"] and told["memory_kind"]
        assert [one["cores"] for one in told["clusters"]] == [list(one.cores) for one in cpu.clusters()]
        code, out, _ = cli("info", "--folder", folder, "--codl")
        assert yaml.safe_load(out)["compute_units"] == told["compute_units"]
        assert not phone.forwards and not phone.reverses
    code, out, _ = cli("stop", "--folder", folder, "--json")
    assert code == 0 and json.loads(out) == {"serial": phone.serial, "server": "none"}


def test_tracker_over_usb(
    adb: StandInAdb, phone: Phone, folder: str, server_file: Path, tmp_path: Path, cli: Cli
) -> None:
    """As over a cable: the phone reaches the tracker, and its clients the phone, only through adb."""
    with tvm_process("rpc_tracker") as (host, tracker):
        port, place = free_port(), f"{host}:{tracker}"
        with forwarding(adb, tmp_path, "--tracker", place, "--port", port) as process:
            with started(
                cli, phone, folder, server_file, "--tracker", place, "--port", port, "--key", "pixel"
            ) as serving:
                assert f"--rpc-tracker {place} --rpc-key pixel" in serving["next"]
                assert "device forward" not in serving["next"]
                with connect(Tracker(host, tracker, "pixel")) as session:
                    assert session.profile.gpu_name
                    assert len(phone.forwards) == len(phone.reverses) == 1
                wait_until(lambda: "1 of 1 free" in cli("ls", "--rpc-tracker", place)[1], "free again")
                assert "--rpc-tracker" in cli("info", "--folder", folder)[2]
                code, out, _ = cli("info", "--folder", folder, "--rpc-tracker", place, "--rpc-key", "pixel", "--json")
                assert code == 0 and json.loads(out)["build_id"]
            process.terminate()
            assert process.wait(20) == 128 + signal.SIGTERM
            assert not phone.forwards and not phone.reverses
            assert not list((tmp_path / "forwards").iterdir())


def test_start_says_that_the_tracker_cannot_be_reached_from_the_phone(
    adb: StandInAdb, phone: Phone, folder: str, server_file: Path, cli: Cli
) -> None:
    """Without ``adb reverse``.  The server that was started in vain is gone."""
    assert cli("push", "--server", server_file, "--folder", folder)[0] == 0
    with tvm_process("rpc_tracker") as (host, tracker):
        port, place = free_port(), f"{host}:{tracker}"
        code, _, err = cli("start", "--folder", folder, "--tracker", place, "--port", port, "--wait", 8)
    assert code == 3 and f"device forward --serial {phone.serial} --tracker {place} --port {port}" in err, err
    assert json.loads(cli("stop", "--folder", folder, "--json")[1])["server"] == "none"
    code, _, err = cli("start", "--folder", folder, "--tracker", place)
    assert code == 3 and "no tracker" in err


def test_what_is_next_with_a_tracker(adb: StandInAdb, phone: Phone) -> None:
    """Over USB its clients come to this machine's port, which must lead to the phone's."""
    one, port = AdbServer().phone(), free_port()
    measure = "tvm-codl measure MODEL --rpc-tracker {} --rpc-key pixel"
    usb, wireless = "127.0.0.1:9190", "10.0.0.1:9190"
    serving = RunningServer(phone.serial, 1, "pixel", port, usb)
    assert next_command(one, serving).startswith(f"tvm-codl device forward --serial {phone.serial} --port {port} ")
    assert next_command(one, serving).endswith(f", then {measure.format(usb)}")
    with Forwarding(one, (Mapping("forward", port, port, "server"),)):
        assert next_command(one, serving) == measure.format(usb)
    assert next_command(one, RunningServer(phone.serial, 1, "pixel", port, wireless)) == measure.format(wireless)


def test_proxy_over_usb(adb: StandInAdb, phone: Phone, folder: str, server_file: Path, cli: Cli) -> None:
    with tvm_process("rpc_proxy") as (host, port):
        place = f"{host}:{port}"
        with (
            Forwarding(AdbServer().phone(), (Mapping("reverse", port, port, "proxy"),)),
            started(cli, phone, folder, server_file, "--proxy", place, "--key", "pixel"),
        ):
            for _ in range(2):
                with connect(Proxy(host, port, "pixel")) as session:
                    assert session.profile.gpu_name
            seen = ("ls", "--rpc-proxy", place, "--rpc-key", "pixel", "--json")
            wait_until(lambda: json.loads(cli(*seen)[1])[-1]["state"] == "free", "free behind the proxy")
            with connect(Proxy(host, port, "pixel")):
                assert json.loads(cli(*seen)[1])[-1]["state"] == "busy or not there"
    assert not phone.reverses


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'cannot link: library not found' >&2; exit 1", "cannot link: library not found"),
        ('echo \'{"error": "port taken"}\'; sleep 5', "port taken"),
        ("echo '{\"port\": 99999999}'; sleep 5", "no server of tvm_codl"),
        ("printf '\\033[31mGIF89a\\n'; sleep 5", "no server of tvm_codl"),
        ("sleep 60", "did not answer within 2 s"),
    ],
)
def test_a_server_that_does_not_serve_is_stopped_and_quoted(
    adb: StandInAdb, phone: Phone, folder: str, tmp_path: Path, cli: Cli, script: str, words: str
) -> None:
    server = tmp_path / "server"
    server.write_text(f"#!/bin/sh\n{script}\n")
    assert cli("push", "--server", server, "--folder", folder)[0] == 0
    code, _, err = cli("start", "--folder", folder, "--wait", 2)
    assert code == 3 and words in err and "\033" not in err
    assert not Path(folder, "server.pid").exists()


@pytest.mark.usefixtures("either_shell")
def test_start_without_a_server_and_with_a_wrong_key(adb: StandInAdb, folder: str, cli: Cli) -> None:
    Path(folder).mkdir()
    code, _, err = cli("start", "--folder", folder)
    assert code == 3 and "is not there, or not executable" in err and "tvm-codl device push" in err
    assert cli("start", "--folder", folder, "--key", "a b")[0] == 2
    assert cli("start", "--folder", folder, "--tracker", "nowhere")[0] == 2
    code, _, err = cli("start", "--folder", folder, "--tracker", "10.0.0.1:9190")
    assert code == 2 and "add --host 0.0.0.0, on networks that you trust" in err


@pytest.mark.usefixtures("either_shell")
@pytest.mark.parametrize("text", ["1 1", "self 0", "$(touch pwned) 1", "99999999999999999999 1", ""])
def test_stop_kills_only_what_start_started(adb: StandInAdb, phone: Phone, folder: str, cli: Cli, text: str) -> None:
    """A pid file of another boot names a process that is somebody else's by now."""
    Path(folder).mkdir()
    Path(folder, "server.pid").write_text(f"{text}\n")
    code, out, err = cli("stop", "--folder", folder, "--json")
    assert code == 0 and json.loads(out)["server"] == "none", err
    assert not Path(folder, "server.pid").exists() and not Path(folder, "pwned").exists()
