"""The app's session logic on a JVM, against TVM's own proxy and tracker: sessions that work, crash and hang."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import psutil
import pytest
import tvm
from tvm import rpc

from tests.phone.app import (
    HANG_S,
    KEY,
    JavaServer,
    compiled_server,
    connect,
    export_library,
    java_server,
    tracked_keys,
    use,
)
from tests.phone.servers import gone, tvm_process, wait_until


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("java")
    compiled_server(folder)
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "sums.so"
    export_library(path)
    return path


def serve_in_a_row(mode: str, built: Path, library: Path, folder: Path, sessions: int, crash: int, hang: int) -> None:
    """That many sessions, one of which dies and one of which never returns; each of the others gives right numbers."""
    with tvm_process(f"rpc_{mode}") as (host, port), java_server(built, folder, mode, host, port) as server:
        served = crashed = hung = 0
        for number in range(1, sessions + 1):
            server.wait_for("LISTENING")
            if number == crash:
                with pytest.raises(Exception):  # noqa: B017 - TVM's own, or the socket's
                    use(connect(mode, host, port), library, "call_abort")
                crashed += 1
                counted, words = f"{crashed} crashed", "died while it served a client: exit code 134"
            elif number == hang:
                with pytest.raises(Exception):  # noqa: B017
                    use(connect(mode, host, port, HANG_S), library, "call_pause")
                hung += 1
                counted, words = f"{hung} hung", f"ended after its time limit of {HANG_S} s"
            else:
                remote = connect(mode, host, port)
                use(remote, library)
                if mode == "tracker":
                    # Others are to wait for a phone that is busy, and not be told that there is none.
                    assert tracked_keys(host, port) == [f"server:{KEY}"]
                del remote
                served += 1
                counted, words = f"{served} served", ""
            server.wait_for(counted)
            assert words in server.last(), server
        server.wait_for(f"LISTENING ({mode} {host}:{port}, key {KEY}")
        assert f"{served} served, {crashed} crashed, {hung} hung" in server.last()
        # It keeps serving, and stops when it is told to, with its session's process.
        use(connect(mode, host, port), library)
        server.wait_for(f"{served + 1} served")
        server.wait_for("LISTENING")
        children = psutil.Process(server.process.pid).children()
        assert children
        server.process.stdin.close()
        assert server.process.wait(30) == 0
        wait_until(lambda: gone(*(child.pid for child in children)), "the session's process ends too")
        assert server.last().startswith("STOPPED")


def test_through_the_proxy(built: Path, library: Path, tmp_path: Path) -> None:
    serve_in_a_row("proxy", built, library, tmp_path, sessions=3, crash=2, hang=0)


def test_through_the_tracker(built: Path, library: Path, tmp_path: Path) -> None:
    serve_in_a_row("tracker", built, library, tmp_path, sessions=3, crash=0, hang=2)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["proxy", "tracker"])
def test_twenty_in_a_row(mode: str, built: Path, library: Path, tmp_path: Path) -> None:
    serve_in_a_row(mode, built, library, tmp_path, sessions=20, crash=5, hang=10)


def test_listening_survives_strangers_and_a_client_that_vanishes(built: Path, library: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with java_server(built, tmp_path, "listen", "127.0.0.1", port) as server:
        server.wait_for("LISTENING")
        magic, mismatch = struct.pack("<i", 0xFF271), struct.pack("<i", 0xFF273)
        strangers = [
            (b"GET / HTTP/1.0\r\n\r\n", b""),
            (magic + struct.pack("<i", 2_000_000_000), b""),
            (magic + struct.pack("<i", 1025), b""),
            (magic + b"\x05", b""),
            (magic + struct.pack("<i", 0), mismatch),
            (magic + struct.pack("<i", 2) + b"  ", mismatch),
        ]
        for words, answer in strangers:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
                stranger.sendall(words)
                stranger.shutdown(socket.SHUT_WR)
                assert _rest(stranger) == answer, words
        with pytest.raises((tvm.error.TVMError, RuntimeError, OSError)):
            rpc.connect("127.0.0.1", port, "another-key")
        assert "last error" not in server.last(), server
        assert _vanished(port, server)
        server.wait_for("LISTENING")
        use(rpc.connect("127.0.0.1", port, KEY), library)
        server.wait_for(" served")


def _rest(stranger: socket.socket) -> bytes:
    """What the server says before it closes; a reset is a close too."""
    try:
        return stranger.recv(16)
    except ConnectionError:
        return b""


def _vanished(port: int, server: JavaServer) -> bool:
    """A client that greets, is answered, and is gone: its session ends and counts as served."""
    greeting = f"client:{KEY}".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(struct.pack("<ii", 0xFF271, len(greeting)) + greeting)
        # All of the answer: who leaves with bytes unread resets the connection, which is a failure and not an end.
        answer = f"server:{KEY}".encode()
        wanted = struct.pack("<ii", 0xFF271, len(answer)) + answer
        with client.makefile("rb") as answers:
            assert answers.read(len(wanted)) == wanted
    server.wait_for("1 served")
    return True


def test_a_tracker_that_comes_later_is_found(built: Path, library: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with java_server(built, tmp_path, "tracker", "127.0.0.1", port) as server:
        server.wait_for("WAITING")
        assert f"the tracker at 127.0.0.1:{port} cannot be reached" in server.last()
        with tvm_process("rpc_tracker", port) as (host, _):
            server.wait_for("LISTENING")
            use(connect("tracker", host, port), library)
            server.wait_for("1 served")


def test_wrong_settings_are_refused_with_words(built: Path, tmp_path: Path) -> None:
    with java_server(built, tmp_path, "carrier-pigeon", "127.0.0.1", 9090) as server:
        assert server.process.wait(30) == 2
        assert "the mode is proxy, tracker or listen" in server.errors.read_text()
