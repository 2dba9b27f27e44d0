"""The connection under a session: found, cut, and given up when its peer vanishes."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tvm_codl.device.session_socket import SessionSocket


@pytest.fixture()
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_connection_that_was_found_notices_that_its_peer_is_silent(listening: socket.socket) -> None:
    session_socket = SessionSocket()
    with socket.create_connection(listening.getsockname()) as connection:
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
        assert session_socket.find(listening.getsockname())
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


def test_it_is_cut_once(listening: socket.socket) -> None:
    session_socket = SessionSocket()
    with socket.create_connection(listening.getsockname()) as connection:
        assert session_socket.find(listening.getsockname())
        assert session_socket.shut_down() and not session_socket.shut_down()
        assert connection.recv(1) == b""


def test_one_of_two_that_are_new_is_not_guessed(listening: socket.socket) -> None:
    session_socket, where = SessionSocket(), listening.getsockname()
    with socket.create_connection(where), socket.create_connection(where):
        assert not session_socket.find(where) and not session_socket.shut_down()
