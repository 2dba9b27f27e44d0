from __future__ import annotations

import socket
import struct

import pytest
from tvm.rpc import base

from tvm_codl.device.handshake import Refused, accept_client, parse_time_limit, read_text, send_text


@pytest.fixture()
def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def hello(key: str) -> bytes:
    return struct.pack("<ii", base.RPC_MAGIC, len(key)) + key.encode()


def test_client_with_the_right_key_is_let_in(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    client.sendall(hello("client:pixel:0.5 -timeout=2.5"))
    assert accept_client(server, "pixel", "pixel:0.5") == 2.5
    assert struct.unpack("<i", client.recv(4))[0] == base.RPC_CODE_SUCCESS
    assert read_text(client) == "server:pixel"


@pytest.mark.parametrize("key", ["client:other", "client:", "server:pixel", " ", "pixel"])
def test_wrong_key_is_told_so(pair: tuple[socket.socket, socket.socket], key: str) -> None:
    client, server = pair
    client.sendall(hello(key))
    with pytest.raises(Refused, match="key"):
        accept_client(server, "pixel", "pixel")
    assert struct.unpack("<i", client.recv(4))[0] == base.RPC_CODE_MISMATCH


@pytest.mark.parametrize("size", [0, -1, 1025, 2**31 - 1])
def test_claims_of_absurd_length_are_refused_unread(pair: tuple[socket.socket, socket.socket], size: int) -> None:
    client, server = pair
    client.sendall(struct.pack("<ii", base.RPC_MAGIC, size))
    with pytest.raises(Refused, match="bytes"):
        accept_client(server, "pixel", "pixel")


def test_half_a_handshake_and_another_protocol(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    client.sendall(b"GET ")
    with pytest.raises(Refused, match="not a TVM RPC client"):
        accept_client(server, "pixel", "pixel")
    client.sendall(hello("client:pixel")[:10])
    client.close()
    with pytest.raises(Refused, match="closed"):
        accept_client(server, "pixel", "pixel")


def test_text_survives_the_way(pair: tuple[socket.socket, socket.socket]) -> None:
    send_text(pair[0], "schlüssel")
    assert read_text(pair[1]) == "schlüssel"


def test_time_limits() -> None:
    assert parse_time_limit(["client:x"]) is None
    assert parse_time_limit(["client:x", "-timeout=0"]) is None
    assert parse_time_limit(["client:x", "-timeout=3"]) == 3.0
    with pytest.raises(Refused):
        parse_time_limit(["client:x", "-timeout=soon"])
