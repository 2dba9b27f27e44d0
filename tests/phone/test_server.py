"""The reference phone as a server: three ways to reach it, and what it survives."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.rpc import base

from tests.phone.servers import Server, at, gone, phone_server, tvm_process, wait_until
from tvm_codl.device.connect import Phone, connect
from tvm_codl.device.handshake import read_number
from tvm_codl.device.spec import Direct, Proxy, Tracker
from tvm_codl.device.tracker_client import tracker_summary
from tvm_codl.errors import DeviceError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with phone_server(tmp_path_factory.mktemp("phone"), port=0, key="codl") as running:
        yield running


@pytest.fixture(scope="module")
def add_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with an OpenCL kernel that adds one."""
    a = te.placeholder((256,), name="a")
    b = te.compute((256,), lambda i: a[i] + 1, name="b")
    schedule = te.create_schedule(b.op)
    block, thread = schedule[b].split(b.op.axis[0], 64)
    schedule[b].bind(block, te.thread_axis("blockIdx.x"))
    schedule[b].bind(thread, te.thread_axis("threadIdx.x"))
    path = tmp_path_factory.mktemp("library") / "add_one.so"
    tvm.build(schedule, [a, b], tvm.target.Target("opencl", host="llvm")).export_library(str(path))
    return path


def check_gpu(phone: Phone, library: Path) -> None:
    phone.remote.upload(str(library))
    function = phone.remote.load_module(library.name)
    x = np.arange(256, dtype="float32")
    a, b = tvm.nd.array(x, phone.gpu), tvm.nd.array(np.zeros_like(x), phone.gpu)
    function(a, b)
    np.testing.assert_array_equal(b.numpy(), x + 1)


def test_three_sessions_in_a_row(server: Server, add_one: Path) -> None:
    for _ in range(3):
        with connect(at(server)) as phone:
            check_gpu(phone, add_one)
            assert phone.profile.gpu_name
            assert phone.profile.build_id
            if len(os.sched_getaffinity(0)) > 1:
                assert not set(phone.profile.cpu_cores) & set(phone.profile.gpu_cores)


def test_session_runs_on_the_cpus_cores_and_leaves_no_file(server: Server) -> None:
    with connect(at(server)) as phone:
        (pid,) = server.session_pids()
        assert tuple(sorted(os.sched_getaffinity(pid))) == phone.profile.cpu_cores
        folder = Path(os.readlink(f"/proc/{pid}/cwd"))
        phone.remote.upload(bytearray(b"x"), target="a.bin")
        assert (folder / "a.bin").exists()
    wait_until(lambda: not folder.exists(), f"{folder} is removed", 5)


def test_upload_outside_the_sessions_folder_is_refused(server: Server) -> None:
    with connect(at(server)) as phone, pytest.raises(tvm.error.TVMError):
        phone.remote.upload(bytearray(b"x"), target="../../escaped.bin")


def test_crash_of_a_session_is_a_device_error_and_the_server_goes_on(server: Server, add_one: Path) -> None:
    with pytest.raises(DeviceError, match="went away"), connect(at(server)) as phone:
        os.kill(server.session_pids()[0], signal.SIGKILL)
        server.wait_for("crashed: SIGKILL")
        phone.remote.get_function("codl.profile")()
    with connect(at(server)) as phone:
        check_gpu(phone, add_one)


def test_users_own_error_is_not_taken_for_a_lost_phone(server: Server) -> None:
    with pytest.raises(ZeroDivisionError), connect(at(server)):
        raise ZeroDivisionError
    with pytest.raises(tvm.error.TVMError), connect(at(server)) as phone:
        phone.remote.load_module("no such file.so")


def test_time_limit_ends_a_session(server: Server) -> None:
    started = time.monotonic()
    with pytest.raises(DeviceError, match="went away"), connect(at(server), session_s=1) as phone:
        server.wait_for("was killed at its time limit")
        phone.remote.get_function("codl.profile")()
    assert time.monotonic() - started < 10


def test_garbage_half_a_handshake_and_a_wrong_key_are_survived(server: Server) -> None:
    magic = struct.pack("<i", 0xFF271)
    for words in (
        b"",
        b"GET / HTTP/1.0\r\n\r\n",
        magic,
        magic + struct.pack("<i", 2**31 - 1),
        magic + struct.pack("<i", -1),
        magic + struct.pack("<i", 8) + b"\xff" * 8,
    ):
        with socket.create_connection(("127.0.0.1", server.port)) as conn:
            conn.sendall(words)
    with pytest.raises(DeviceError), connect(at(server, "wrong")):
        pass
    with connect(at(server)) as phone:
        assert phone.profile.name


def test_busy_phone_is_said_to_be_busy_and_not_held(server: Server) -> None:
    with connect(at(server)), pytest.raises(DeviceError, match="did not answer"), connect(at(server), timeout_s=1):
        pass
    with connect(at(server)) as phone:
        assert phone.profile.name


def test_through_a_tracker_that_comes_later_and_comes_back(tmp_path: Path) -> None:
    """The tracker starts after the phone, dies and starts again; the phone registers each time."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    place = Tracker("127.0.0.1", port, "pixel")

    def free() -> bool:
        try:
            return tracker_summary("127.0.0.1", port).get("pixel") == (1, 1)
        except DeviceError:  # a tracker that is just starting may drop a connection
            return False

    with phone_server(tmp_path, port=0, key="pixel", tracker=f"127.0.0.1:{port}") as server:
        for _ in range(2):
            with tvm_process("rpc_tracker", port=port):
                wait_until(free, "registered and free")
                for _ in range(2):
                    with connect(place) as phone:
                        assert phone.profile.name
                with (
                    pytest.raises(DeviceError, match="no phone serves the key 'other'") as error,
                    connect(Tracker("127.0.0.1", port, "other")),
                ):
                    pass
                assert "pixel" in error.value.evidence
        assert server.process.poll() is None


def test_key_that_is_back_in_a_moment_is_waited_for(server: Server) -> None:
    """As an app's between two sessions."""
    with tvm_process("rpc_tracker") as (host, port), socket.create_connection((host, port), timeout=30) as conn:

        def come_back() -> None:
            conn.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            assert read_number(conn) == base.RPC_TRACKER_MAGIC
            offer = [base.TrackerCode.PUT, "pixel", [server.port, "codl"], "127.0.0.1"]
            for words in ([base.TrackerCode.UPDATE_INFO, {"key": "server:pixel", "addr": [None, server.port]}], offer):
                base.sendjson(conn, words)
                assert base.recvjson(conn) == base.TrackerCode.SUCCESS

        later = threading.Timer(0.5, come_back)
        later.start()
        with connect(Tracker(host, port, "pixel"), timeout_s=30) as phone:
            assert phone.profile.name
        later.join()


def test_through_a_proxy(tmp_path: Path, add_one: Path) -> None:
    with (
        tvm_process("rpc_proxy") as (host, port),
        phone_server(tmp_path, proxy=f"{host}:{port}", key="pixel") as server,
    ):
        for _ in range(3):
            with connect(Proxy(host, port, "pixel")) as phone:
                check_gpu(phone, add_one)
        assert server.process.poll() is None


def test_two_proxies_serve_at_once() -> None:
    with tvm_process("rpc_proxy") as one, tvm_process("rpc_proxy") as two:
        for address in (one, two):
            time.sleep(0.5)  # A proxy that cannot have its web port ends after it has listened for a moment.
            socket.create_connection(address, timeout=5).close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_server_and_session_and_leaves_nothing(tmp_path: Path, number: int) -> None:
    with phone_server(tmp_path, port=0, key="codl") as server, connect(at(server)) as phone:
        (session,) = server.session_pids()
        os.kill(server.process.pid, number)
        assert server.process.wait(10) == 0
        wait_until(lambda: gone(session), "the session ends", 5)
        del phone
    assert [p.name for p in tmp_path.iterdir()] == ["phone.log"]


def test_kill_of_the_server_takes_its_session_along(tmp_path: Path) -> None:
    with phone_server(tmp_path, port=0, key="codl") as server, connect(at(server)):
        (session,) = server.session_pids()
        server.process.kill()
        server.process.wait(10)
        wait_until(lambda: gone(session), "the session ends", 5)


def test_nobody_there_is_said_within_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        free = socket.create_server(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        for place in (Tracker("127.0.0.1", port, "k"), Proxy("127.0.0.1", port, "k"), Direct("127.0.0.1", port, "k")):
            with pytest.raises(DeviceError, match=r"^no "), connect(place):
                pass
        with (
            pytest.raises(DeviceError, match="did not answer"),
            connect(Direct(*silent.getsockname(), "k"), timeout_s=1),
        ):
            pass
