"""The emulated arm64 phone through listen, tracker and proxy: right answers, three sessions in a row, one of them killed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.phone import android_stubs
from tests.phone.cross_libraries import cross_library, sample, wanted
from tests.phone.emulated import emulated_phone, missing, opencl_missing
from tests.phone.servers import Server, tvm_process, wait_until
from tvm_codl.device.connect import Phone, connect
from tvm_codl.device.spec import Direct, Proxy, Spec, Tracker
from tvm_codl.errors import DeviceError
from tvm_codl.measure.plan_libraries import open_library
from tvm_codl.runtime.comodule import CoModule
from tvm_codl.runtime.platforms import NDK_COMPILER

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
needs_opencl = pytest.mark.skipif(bool(opencl_missing()), reason=opencl_missing())

ANSWER_S = 120.0
#: Far more runs than there is time for.
ENDLESS = 10**8


@pytest.fixture(scope="module")
def on_the_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cross_library("linux-arm64", tmp_path_factory.mktemp("arm64") / "cpu.so", other="cpu")


@pytest.fixture(scope="module")
def on_both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cross_library("linux-arm64", tmp_path_factory.mktemp("arm64") / "both.so")


@contextlib.contextmanager
def listening(folder: Path) -> Iterator[tuple[Server, Spec]]:
    with emulated_phone(folder, port=0, key="emulated") as server:
        yield server, Direct("127.0.0.1", server.port, "emulated")


@contextlib.contextmanager
def tracked(folder: Path) -> Iterator[tuple[Server, Spec]]:
    with (
        tvm_process("rpc_tracker") as (host, port),
        emulated_phone(folder, port=0, key="emulated", tracker=f"{host}:{port}") as server,
    ):
        wait_until(lambda: "registered" in server.log.read_text(), "the phone registers", ANSWER_S)
        yield server, Tracker(host, port, "emulated")


@contextlib.contextmanager
def proxied(folder: Path) -> Iterator[tuple[Server, Spec]]:
    with (
        tvm_process("rpc_proxy") as (host, port),
        emulated_phone(folder, proxy=f"{host}:{port}", key="emulated") as server,
    ):
        yield server, Proxy(host, port, "emulated")


Way = Callable[[Path], contextlib.AbstractContextManager[tuple[Server, Spec]]]
ways = pytest.mark.parametrize("way", [listening, tracked, proxied], ids=["listen", "tracker", "proxy"])


def answered(phone: Phone, library: Path) -> CoModule:
    """The library on the phone, after it has given right answers."""
    module = open_library(library, phone)
    for seed in (1, 2):
        (result,) = module.run({"x": sample(seed)})
        np.testing.assert_allclose(result, wanted(sample(seed)), rtol=1e-4, atol=1e-5)
    return module


def killed(server: Server, place: Spec, library: Path) -> None:
    """A session that is killed while it runs a network."""
    with pytest.raises(DeviceError, match="went away"), connect(place, timeout_s=ANSWER_S) as phone:
        module = answered(phone, library)
        (session,) = server.session_pids()
        threading.Timer(0.3, os.kill, (session, signal.SIGKILL)).start()
        module.benchmark(ENDLESS)


@ways
def test_three_sessions_in_a_row_of_which_one_is_killed(way: Way, tmp_path: Path, on_the_cpu: Path) -> None:
    with way(tmp_path) as (server, place):
        for turn in range(3):
            if turn == 1:
                killed(server, place, on_the_cpu)
                wait_until(lambda: "crashed: SIGKILL" in server.log.read_text(), "the server notices", ANSWER_S)
                continue
            with connect(place, timeout_s=ANSWER_S) as phone:
                assert phone.profile.arch == "aarch64"
                module = answered(phone, on_the_cpu)
                assert {span["processor"] for span in module.timeline()} == {"cpu"}
                assert all(ms > 0 for ms in module.benchmark(1, 2))
        assert server.process.poll() is None


@needs_opencl
@ways
def test_both_processors_in_three_sessions_of_which_one_is_killed(way: Way, tmp_path: Path, on_both: Path) -> None:
    with way(tmp_path) as (server, place):
        for turn in range(3):
            if turn == 1:
                killed(server, place, on_both)
                wait_until(lambda: "crashed: SIGKILL" in server.log.read_text(), "the server notices", ANSWER_S)
                continue
            with connect(place, timeout_s=ANSWER_S) as phone:
                assert phone.profile.gpu_name
                spans = answered(phone, on_both).timeline()
                kernels = {span["processor"] for span in spans if span["kind"] == "kernel"}
                assert kernels == {"cpu", "gpu"}
        assert server.process.poll() is None


@needs_opencl
@pytest.mark.parametrize("sharing", ["svm", "mapped", "copied"])
def test_every_way_to_share_memory(sharing: str, tmp_path: Path, on_both: Path) -> None:
    with listening(tmp_path) as (_, place), connect(place, timeout_s=ANSWER_S) as phone:
        module = open_library(on_both, phone, sharing)
        (result,) = module.run({"x": sample()})
        np.testing.assert_allclose(result, wanted(sample()), rtol=1e-4, atol=1e-5)
        assert module.sharing == sharing


@pytest.mark.skipif(bool(android_stubs.missing()), reason=android_stubs.missing())
def test_a_library_for_android_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very file that Android would load; libraries of Android's names and versions lead it to glibc's functions."""
    monkeypatch.setenv(NDK_COMPILER, str(android_stubs.compiler(tmp_path / "ndk")))
    library = cross_library("android-arm64", tmp_path / "android.so", other="cpu" if opencl_missing() else "gpu")
    shims = android_stubs.shims(tmp_path / "shims")
    with (
        emulated_phone(tmp_path, {"LD_LIBRARY_PATH": str(shims)}, port=0, key="emulated") as server,
        connect(Direct("127.0.0.1", server.port, "emulated"), timeout_s=ANSWER_S) as phone,
    ):
        answered(phone, library)
