"""The native server on this machine: the ways to reach it, what it tells, what it survives."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
import tvm
from tvm import te

from tests.phone.native_servers import native_server
from tests.phone.servers import Server, gone, tvm_process, wait_until
from tests.phone.survivor import measuring, probes
from tests.runtime.partitions import answer, convolutions
from tvm_codl.build.library import build
from tvm_codl.device import connect as connection
from tvm_codl.device.connect import Phone, connect
from tvm_codl.device.cores import phone_environment
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.device.spec import Direct, Proxy, Tracker
from tvm_codl.errors import DeviceError
from tvm_codl.kernels.target import vector_lanes
from tvm_codl.kernels.toolchain import toolchain
from tvm_codl.measure.settings import Settings
from tvm_codl.records.store import RecordStore
from tvm_codl.runtime.comodule import CoModule
from tvm_codl.runtime.server_build import build_id, coexec_id, compile_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with native_server(tmp_path_factory.mktemp("native"), port=0, key="codl") as running:
        yield running


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    """A library of convolutions that are each split between CPU and GPU; an input; and the right answer to it."""
    cut, whole = convolutions(extent=6, channels=4, row=3, channel=4)
    built = build(cut, tvm.target.Target("llvm"), tvm.target.Target("opencl"))
    value = np.random.default_rng(0).standard_normal((1, 6, 6, 4)).astype("float32")
    return built.export(tmp_path_factory.mktemp("split") / "split.so"), value, answer(whole, value)


def at(server: Server, key: str = "codl") -> Direct:
    return Direct("127.0.0.1", server.port, key)


def check_split(phone: Phone, split: tuple[Path, np.ndarray, np.ndarray]) -> None:
    library, value, wanted = split
    phone.remote.upload(str(library))
    module = CoModule(phone.remote.load_module(library.name), phone.cpu)
    (found,) = module.run({"x": value})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert {event["processor"] for event in module.timeline()} >= {"cpu", "gpu"}
    assert all(ms > 0 for ms in module.benchmark(2, 3))


@contextlib.contextmanager
def reachable(way: str, folder: Path) -> Iterator[tuple[Server, Direct | Tracker | Proxy]]:
    """A server of its own, and where clients find it."""
    if way == "listen":
        with native_server(folder, listen="127.0.0.1:0", key="pixel") as server:
            yield server, at(server, "pixel")
    elif way == "tracker":
        with (
            tvm_process("rpc_tracker") as (host, port),
            native_server(folder, port=0, tracker=f"{host}:{port}", key="pixel") as server,
        ):
            server.wait_for("registered")
            yield server, Tracker(host, port, "pixel")
    else:
        with (
            tvm_process("rpc_proxy") as (host, port),
            native_server(folder, proxy=f"{host}:{port}", key="pixel") as server,
        ):
            yield server, Proxy(host, port, "pixel")


@pytest.mark.parametrize("way", ["listen", "tracker", "proxy"])
def test_three_sessions_in_a_row_one_of_them_killed(
    way: str, tmp_path: Path, split: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    with reachable(way, tmp_path) as (server, where):
        with connect(where, timeout_s=30) as phone:
            check_split(phone, split)
        with pytest.raises(DeviceError, match="went away"), connect(where, timeout_s=30) as phone:
            check_split(phone, split)
            os.kill(server.session_pids()[0], signal.SIGKILL)
            server.wait_for("session 2 crashed: SIGKILL")
            phone.remote.get_function("codl.profile")()
        with connect(where, timeout_s=30) as phone:
            check_split(phone, split)
        server.wait_for("session 3 ended")
        assert server.process.poll() is None


def test_it_tells_the_facts_that_the_reference_phone_tells(server: Server) -> None:
    script = "from tvm_codl.device.facts import profile; print(profile().to_json())"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **phone_environment()}, capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    wanted = DeviceProfile.from_json(done.stdout.strip().splitlines()[-1])
    with connect(at(server)) as phone:
        found = phone.profile
        tools = toolchain(found)
    own = ("name", "build_id", "cpu_target")
    same = {name: getattr(wanted, name) for name in wanted.__struct_fields__ if name not in own}
    assert {name: getattr(found, name) for name in same} == same
    assert found.cpu_name in found.name
    # It names a processor of the same registers, for it has no LLVM to know this one's name.
    assert vector_lanes(tools.cpu) == vector_lanes(toolchain(wanted).cpu)


def test_it_tells_its_build_and_its_limits(server: Server) -> None:
    with connect(at(server)) as phone:
        told = connection.server_build(phone.remote)
        assert phone.profile.build_id == server.about["build_id"] == build_id("host")
    assert told is not None and told.coexec == coexec_id() and told.build_id == build_id("host")
    assert told.platform == "host" and told.compiler and 0 < told.packet_bytes <= 1 << 30
    done = subprocess.run([str(compile_server()), "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert msgspec.json.decode(done.stdout, type=connection.ServerBuild) == told


def test_client_of_another_build_is_told_what_to_build(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "coexec_id", lambda: "0123456789abcdef")
    with pytest.raises(DeviceError, match="another version") as error, connect(at(server)):
        pass
    assert coexec_id() in error.value.evidence and "0123456789abcdef" in error.value.evidence
    assert "tvm_codl.runtime.server_build host" in error.value.next


def test_files_stay_in_the_sessions_folder_and_go_with_it(server: Server) -> None:
    with connect(at(server)) as phone:
        (pid,) = server.session_pids()
        assert tuple(sorted(os.sched_getaffinity(pid))) == phone.profile.cpu_cores
        folder = Path(os.readlink(f"/proc/{pid}/cwd"))
        phone.remote.upload(bytearray(b"some words"), target="deep/a.bin")
        assert (folder / "deep/a.bin").read_bytes() == b"some words"
        assert bytes(phone.remote.download("deep/a.bin")) == b"some words"
        phone.remote.remove("/somewhere/else/deep/../b.bin")
        for name in ("../../escaped.bin", "deep/../../escaped.bin", "..", "."):
            with pytest.raises(tvm.error.TVMError):
                phone.remote.upload(bytearray(b"x"), target=name)
        phone.remote.upload(bytearray(b"x"), target="a.tar")
        with pytest.raises(tvm.error.TVMError, match="create_shared"):
            phone.remote.load_module("a.tar")
        with pytest.raises(tvm.error.TVMError, match="no file"):
            phone.remote.load_module("no such file.so")
    wait_until(lambda: not folder.exists(), f"{folder} is removed", 5)


def test_kernels_are_compiled_ahead(server: Server, tmp_path: Path) -> None:
    a = te.placeholder((256,), name="a")
    b = te.compute((256,), lambda i: a[i] + 1, name="b")
    schedule = te.create_schedule(b.op)
    block, thread = schedule[b].split(b.op.axis[0], 64)
    schedule[b].bind(block, te.thread_axis("blockIdx.x"))
    schedule[b].bind(thread, te.thread_axis("threadIdx.x"))
    path = tmp_path / "add.so"
    tvm.build(schedule, [a, b], tvm.target.Target("opencl", host="llvm"), name="add").export_library(str(path))
    arguments = json.dumps([[[256], "float32"]] * 2)
    with connect(at(server)) as phone:
        phone.remote.upload(str(path))
        module = phone.remote.load_module(path.name)
        warm_up = phone.remote.get_function("codl.warm_up")
        warm_up(module, path.name, json.dumps(["add"]), arguments)
        with pytest.raises(tvm.error.TVMError, match="has no other"):
            warm_up(module, path.name, json.dumps(["other"]), arguments)
        x = np.arange(256, dtype="float32")
        given, got = tvm.nd.array(x, phone.gpu), tvm.nd.empty((256,), "float32", phone.gpu)
        phone.remote.get_function("tvm.contrib.random.random_fill")(got)
        module.get_function("add")(given, got)
        np.testing.assert_array_equal(got.numpy(), x + 1)
        assert module.time_evaluator("add", phone.gpu, number=2, repeat=2)(given, got).mean > 0


def test_time_limit_ends_a_session(server: Server) -> None:
    with pytest.raises(DeviceError, match="went away"), connect(at(server), session_s=1) as phone:
        server.wait_for("was killed at its time limit")
        phone.remote.get_function("codl.profile")()


def test_session_that_hangs_ends_when_its_client_has_gone(server: Server) -> None:
    with connect(at(server)) as phone:
        (pid,) = server.session_pids()
        os.kill(pid, signal.SIGSTOP)
        phone.drop()
        server.wait_for("was killed: its client had gone")
    wait_until(lambda: gone(pid), "the session's process ends", 5)
    with connect(at(server)) as phone:
        assert phone.profile.name


def test_phone_without_opencl_serves_its_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.phone import native_servers

    real = native_servers.phone_environment
    monkeypatch.setattr(
        native_servers, "phone_environment", lambda: {**real(), "CODL_OPENCL_LIBRARY": "/nonexistent/libOpenCL.so"}
    )
    n = te.placeholder((8,), name="n")
    twice = te.compute((8,), lambda i: n[i] * 2, name="twice")
    path = tmp_path / "twice.so"
    tvm.build(te.create_schedule(twice.op), [n, twice], "llvm", name="twice").export_library(str(path))
    with native_server(tmp_path, port=0) as server, connect(at(server)) as phone:
        assert (phone.profile.gpu_name, phone.profile.gpu_target) == ("", "")
        phone.remote.upload(str(path))
        x = tvm.nd.array(np.arange(8, dtype="float32"), phone.cpu)
        y = tvm.nd.empty((8,), "float32", phone.cpu)
        phone.remote.load_module(path.name)["twice"](x, y)
        np.testing.assert_array_equal(y.numpy(), np.arange(8) * 2)
        assert "no OpenCL" in server.log.read_text()


def test_a_network_is_measured_on_it(server: Server, tmp_path: Path) -> None:
    chosen = probes()[:3]
    quick = Settings(fewest=2, most=2, baseline_every=4, drift=1e6, first_s=60.0, patience_s=60.0)
    with measuring(tmp_path / "records.sqlite", at(server), quick) as running:
        records = running.measure(chosen)
    assert len(records) >= len(chosen) and not [record.error for record in records if record.error]
    with RecordStore(tmp_path / "records.sqlite") as store:
        assert list(store)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_server_and_session_and_leaves_nothing(tmp_path: Path, number: int) -> None:
    with native_server(tmp_path, port=0) as server, connect(at(server)) as phone:
        (session,) = server.session_pids()
        os.kill(server.process.pid, number)
        assert server.process.wait(10) == 0
        wait_until(lambda: gone(session), "the session ends", 5)
        del phone
    assert [p.name for p in tmp_path.iterdir()] == ["phone.log"]


def test_killed_server_takes_its_session_along_and_the_next_removes_its_folder(tmp_path: Path) -> None:
    with native_server(tmp_path, port=0) as server, connect(at(server)):
        (session,) = server.session_pids()
        server.process.kill()
        server.process.wait(10)
        wait_until(lambda: gone(session), "the session ends", 5)
    assert list(tmp_path.glob("tvm-codl-*"))
    with native_server(tmp_path, port=0) as server:
        assert [int(p.name.split("-")[2]) for p in tmp_path.glob("tvm-codl-*")] == [server.process.pid]


def test_it_ends_with_the_process_that_it_belongs_to(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys\n"
        "line = [sys.argv[1], '--port', '0', '--parent', str(os.getpid())]\n"
        "child = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=open(sys.argv[2], 'w'))\n"
        "child.stdout.readline(); print(child.pid, flush=True); os._exit(0)\n"
    )
    line = [sys.executable, "-c", script, str(compile_server()), str(tmp_path / "phone.log")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True, env={**os.environ, "TMPDIR": str(tmp_path)})  # fmt: skip
    wait_until(lambda: gone(int(done.stdout)), "the server ends", 10)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "soon"], "--port takes a whole number"),
        (["--frobnicate"], "there is no option --frobnicate"),
        (["--tracker", "a:1", "--proxy", "b:2"], "exclude each other"),
        (["--tracker", "nowhere"], "not host:port"),
        (["--key", "two words"], "without spaces"),
        (["--key"], "takes a value"),
    ],
)
def test_wrong_options_are_explained(arguments: list[str], words: str) -> None:
    done = subprocess.run([str(compile_server()), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and words in done.stderr and "--tracker HOST:PORT" in done.stderr


def test_taken_ports_are_said(server: Server) -> None:
    line = [str(compile_server()), "--port", str(server.port), "--port-end", str(server.port + 1)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3 and str(server.port) in json.loads(done.stdout)["error"]


def test_tracker_may_come_later_and_come_back(tmp_path: Path) -> None:
    with tvm_process("rpc_tracker") as (host, port):
        pass  # a port that is free now
    place = Tracker(host, port, "pixel")
    with native_server(tmp_path, port=0, key="pixel", tracker=f"{host}:{port}") as server:
        for times in (1, 2):
            with tvm_process("rpc_tracker", port=port):
                server.wait_for("registered", times)
                with connect(place, timeout_s=30) as phone:
                    assert phone.profile.name
        assert server.process.poll() is None
        assert len(psutil.Process(server.process.pid).open_files()) < 10
