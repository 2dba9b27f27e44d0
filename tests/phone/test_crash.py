"""A session that crashes: its client learns the signal and the last words of its log, wherever the phone is."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import tvm
from tvm import tir

from tests.phone.servers import phone_server, tvm_process
from tvm_codl.device.connect import Phone, connect
from tvm_codl.device.recovery import Lost, Recovery
from tvm_codl.device.spec import Direct, Local, Proxy, Spec, Tracker
from tvm_codl.errors import DeviceError

READS_NOWHERE = tir.call_extern("int32", "strlen", tir.reinterpret("handle", tir.const(0, "uint64")))
ABORTS = tir.call_extern("int32", "abort")
SPEAKS = tir.call_extern("int32", "perror", tir.StringImm("the driver's last words"))


def crash(phone: Phone, folder: Path, *calls: tir.PrimExpr) -> None:
    """Runs a library on the phone that calls those functions of the C library."""
    buffer = tir.decl_buffer((1,), "float32")
    handle = tir.Var("x", "handle")
    body = tir.SeqStmt([*map(tir.Evaluate, calls), tir.Evaluate(0)])
    made = tir.PrimFunc([handle], body, buffer_map={handle: buffer}).with_attr("global_symbol", "fatal")
    library = folder / "fatal.so"
    tvm.build(tvm.IRModule({"fatal": made}), target="llvm").export_library(str(library))
    phone.remote.upload(str(library))
    phone.remote.load_module(library.name)["fatal"](tvm.nd.empty((1,), "float32", phone.cpu))


def crashed(where: Spec, folder: Path, *calls: tir.PrimExpr) -> DeviceError:
    with pytest.raises(DeviceError, match="went away") as error, connect(where, timeout_s=30) as phone:
        crash(phone, folder, *calls)
    return error.value


@pytest.mark.parametrize(("call", "signal"), [(READS_NOWHERE, "SIGSEGV"), (ABORTS, "SIGABRT")])
def test_a_local_phones_session(tmp_path: Path, call: tir.PrimExpr, signal: str) -> None:
    error = crashed(Local(), tmp_path, SPEAKS, call)
    assert f"the session ended by {signal}" in error.evidence
    assert "the driver's last words" in error.evidence
    assert "log" not in error.next, "there is none that the client could read"


def test_a_servers_session(tmp_path: Path) -> None:
    """At its own port and through a tracker; the next client is served, and is told nothing of it."""
    with tvm_process("rpc_tracker") as (host, port):
        with phone_server(tmp_path, port=0, key="pixel", tracker=f"{host}:{port}") as server:
            server.wait_for("registered")
            for where in (Tracker(host, port, "pixel"), Tracker(host, port, "pixel")):
                assert "the session ended by SIGABRT" in crashed(where, tmp_path, SPEAKS, ABORTS).evidence
            assert server.log.read_text().count("the driver's last words") == 2
            with connect(Tracker(host, port, "pixel"), timeout_s=30) as phone:
                assert phone.last_ending is None
        with phone_server(tmp_path, port=0, key="board") as server:
            direct = Direct("127.0.0.1", server.port, "board")
            assert "the session ended by SIGABRT" in crashed(direct, tmp_path, SPEAKS, ABORTS).evidence


def test_a_session_behind_a_proxy(tmp_path: Path) -> None:
    with tvm_process("rpc_proxy") as (host, port), phone_server(tmp_path, proxy=f"{host}:{port}", key="far"):
        evidence = crashed(Proxy(host, port, "far"), tmp_path, SPEAKS, READS_NOWHERE).evidence
    assert "the session ended by SIGSEGV" in evidence and "the driver's last words" in evidence


def test_a_session_that_is_opened_anew_says_how_the_last_one_ended(tmp_path: Path) -> None:
    said: list[str] = []
    with connect() as phone:
        recovery = Recovery(phone, 1, said.append)
        with pytest.raises(Lost) as lost:
            recovery.call(30.0, lambda: crash(phone, tmp_path, ABORTS))
        recovery.recover(lost.value, 30.0)
        assert recovery.how == "the session ended by SIGABRT" and recovery.how in said[-1]
        with pytest.raises(Lost) as lost:
            recovery.call(30.0, lambda: crash(phone, tmp_path, READS_NOWHERE))
        with pytest.raises(DeviceError) as error:
            recovery.recover(lost.value, 30.0)
        assert "the session ended by SIGSEGV" in error.value.evidence


def test_a_server_that_is_killed_leaves_its_log() -> None:
    with pytest.raises(DeviceError, match="went away") as error, connect() as phone:
        for child in psutil.Process().children(recursive=True):
            if "tvm_codl.device.reference.server" in " ".join(child.cmdline()):
                child.kill()
        phone.remote.get_function("codl.profile")()
    assert "serving" in error.value.evidence
