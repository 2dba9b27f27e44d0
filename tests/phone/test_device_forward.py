"""``tvm-codl device forward``: what it sets up, it takes down, however it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.phone.device_commands import Cli, forwarding, free_port
from tests.phone.stand_in_adb import StandInAdb
from tests.phone.stand_in_phone import Phone
from tvm_codl.device.adb.connection import AdbServer
from tvm_codl.device.adb.forward import Forwarding, Mapping
from tvm_codl.device.adb.server import restart_command


def test_forward_is_taken_down_on_interrupt_and_what_a_kill_left_by_remove(
    adb: StandInAdb, phone: Phone, tmp_path: Path
) -> None:
    words = ("--tracker", f"127.0.0.1:{free_port()}", "--port", free_port())
    with forwarding(adb, tmp_path, *words) as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert [one["what"] for one in json.loads(process.stdout.read())] == ["tracker", "server"]
        assert not phone.forwards and not phone.reverses

    def remove() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tvm_codl", "device", "forward", "--remove", "--json"],
            env={**os.environ, "TVM_CODL_CACHE": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    with forwarding(adb, tmp_path, *words) as process:
        done = remove()
        assert json.loads(done.stdout) == [] and "still runs" in done.stderr
        process.kill()
        process.wait(10)
        assert len(phone.forwards) == len(phone.reverses) == 1
        phone.forwards["tcp:1"] = phone.forwards[next(iter(phone.forwards))]  # somebody else's
        done = remove()
        assert len(json.loads(done.stdout)) == 2 and "2 taken down" in done.stderr
        assert list(phone.forwards) == ["tcp:1"] and not phone.reverses


def test_forward_comes_back_with_the_phone(adb: StandInAdb, phone: Phone, tmp_path: Path) -> None:
    with forwarding(adb, tmp_path, "--port", free_port()) as process:
        assert process.stderr is not None
        phone.unplug()
        assert any("away; waiting" in line for line in process.stderr)
        phone.state = "device"
        assert any("set up again: server" in line for line in process.stderr)
        assert len(phone.forwards) == 1


def test_forward_tells_that_the_server_ended_with_the_connection(
    adb: StandInAdb, phone: Phone, folder: str, tmp_path: Path
) -> None:
    """As where another USB mode ends adb's half on the phone, and with it what its shell had started."""
    Path(folder).mkdir()
    Path(folder, "server.pid").write_text("999999999 1\n")
    about = {"port": 9091, "key": "pixel", "host": "0.0.0.0", "tracker": "127.0.0.1:9190", "build_id": "x"}
    Path(folder, "server.out").write_text(json.dumps(about) + "\n")
    command = (
        f"tvm-codl device start --serial {phone.serial} --folder {folder} --host 0.0.0.0 --port 9091 "
        "--tracker 127.0.0.1:9190 --key pixel"
    )
    with forwarding(adb, tmp_path, "--folder", folder, "--port", free_port()) as process:
        assert process.stderr is not None
        phone.unplug()
        assert any("away; waiting" in line for line in process.stderr)
        phone.state = "device"
        assert any("has ended" in line and command in line for line in process.stderr)


@pytest.mark.usefixtures("either_shell")
def test_a_server_that_runs_or_was_stopped_need_not_be_started(adb: StandInAdb, phone: Phone, folder: str) -> None:
    one = AdbServer().phone()
    assert restart_command(one, folder) == ""
    Path(folder).mkdir()
    assert restart_command(one, folder) == ""
    begun = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19]
    Path(folder, "server.pid").write_text(f"{os.getpid()} {begun}\n")
    assert restart_command(one, folder) == ""
    Path(folder, "server.pid").write_text(f"{os.getpid()} {int(begun) + 1}\n")
    Path(folder, "server.out").write_text('{"proxy": "127.0.0.1:9090", "key": "$(reboot)"}\n')
    assert restart_command(one, folder).endswith("--proxy 127.0.0.1:9090 --key '$(reboot)'")


def test_forward_refuses_a_taken_port_and_another_machine(
    adb: StandInAdb, phone: Phone, cli: Cli, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = cli("forward", "--tracker", f"127.0.0.1:{free_port()}", "--port", port)
        assert code == 3 and "Address already in use" in err
    assert not phone.forwards and not phone.reverses and not list((tmp_path / "forwards").iterdir())
    with Forwarding(AdbServer().phone(), (Mapping("forward", 9999, port, "server"),)):
        code, _, err = cli("forward", "--port", port)
        assert code == 2 and "forward --remove" in err
    code, _, err = cli("forward", "--tracker", "10.0.0.1:9190")
    assert code == 2 and "networks that you trust: tvm-codl device start --host 0.0.0.0 --tracker 10.0.0.1:9190" in err
    code, _, err = cli("forward", "--proxy", "10.0.0.1:9090")
    assert code == 2 and "itself: tvm-codl device start --proxy 10.0.0.1:9090" in err
    assert cli("forward")[0] == 2
    assert cli("forward", "--remove", "--port", 9090)[0] == 2
