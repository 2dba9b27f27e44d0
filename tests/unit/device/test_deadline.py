"""Work under a deadline, and connections that can be cut."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tvm_codl.device.deadline import TimeUp, call_within
from tvm_codl.device.session_socket import SessionSocket


def test_results_and_errors_come_through() -> None:
    assert call_within(5.0, lambda: 7) == 7
    assert call_within(5.0, lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        call_within(5.0, lambda: 1 / 0)


def test_what_does_not_end_is_left() -> None:
    end = threading.Event()
    with pytest.raises(TimeUp, match=r"not done within 0\.2 s") as error:
        call_within(0.2, end.wait)
    assert error.value.thread.is_alive()
    end.set()
    error.value.thread.join(5.0)
    assert not error.value.thread.is_alive()


def test_a_process_that_stood_still_does_not_blame_the_peer() -> None:
    """A job that is stopped and goes on: the peer needed one second, the deadline is two, the stop lasts three."""
    pid = os.fork()
    if not pid:
        try:
            call_within(2.0, lambda: [time.sleep(0.05) for _ in range(20)])
            os._exit(0)
        except TimeUp:
            os._exit(1)
    time.sleep(0.3)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(3.0)
    os.kill(pid, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.fixture()
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_a_call_that_never_returns_is_cut(listener: socket.socket) -> None:
    address = listener.getsockname()
    with socket.create_connection(address):  # one that was there before
        session_socket = SessionSocket()
        with socket.create_connection(address) as connection:
            assert session_socket.find(address)
            with pytest.raises(TimeUp) as error:
                call_within(0.2, lambda: connection.recv(1))
            assert session_socket.shut_down()
            error.value.thread.join(5.0)
            assert not error.value.thread.is_alive()
            assert not session_socket.shut_down(), "cut twice"


def test_a_number_that_belongs_to_another_connection_by_now_is_left_alone(listener: socket.socket) -> None:
    address = listener.getsockname()
    session_socket = SessionSocket()
    connection = socket.create_connection(address)
    assert session_socket.find(("localhost", address[1]))
    number = connection.fileno()
    connection.close()
    with socket.create_connection(address) as other:
        if other.fileno() != number:
            os.dup2(other.fileno(), number)
        assert not session_socket.shut_down()
        served = [listener.accept()[0] for _ in range(2)][1]
        served.send(b"x")
        assert other.recv(1) == b"x"
        served.close()
    if other.fileno() == -1 and number in map(int, filter(str.isdigit, os.listdir("/dev/fd"))):
        with __import__("contextlib").suppress(OSError):
            os.close(number)
