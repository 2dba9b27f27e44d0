"""TVM RPC's handshake from the server's side, with limits on what a stranger may send.

Each side sends a magic number and a key with its length; the protocol is described in TVM's ``rpc/server.py``.
"""

from __future__ import annotations

import socket
import struct

from tvm.rpc import base

PATIENCE_S = 5.0
LONGEST_KEY = 1024


class Refused(Exception):
    """The peer is no TVM RPC client, or has the wrong key."""


def dial(host: str, port: int, magic: int = base.RPC_MAGIC) -> socket.socket:
    """A connection that has sent ``magic``.  Raises :class:`OSError`."""
    conn = socket.create_connection((host, port), timeout=PATIENCE_S)
    try:
        conn.sendall(struct.pack("<i", magic))
        return conn
    except BaseException:
        conn.close()
        raise


def read_exactly(conn: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = conn.recv(size - len(data))
        if not more:
            raise Refused("the peer closed the connection")
        data += more
    return data


def read_number(conn: socket.socket) -> int:
    return int(struct.unpack("<i", read_exactly(conn, 4))[0])


def read_text(conn: socket.socket) -> str:
    size = read_number(conn)
    if not 0 < size <= LONGEST_KEY:
        raise Refused(f"a key of {size} bytes")
    return read_exactly(conn, size).decode(errors="replace")


def send_text(conn: socket.socket, text: str) -> None:
    data = text.encode()
    conn.sendall(struct.pack("<i", len(data)) + data)


def accept_client(conn: socket.socket, key: str, match_key: str) -> float | None:
    """Answers a client.  Returns its time limit in seconds, if it sets one; raises :class:`Refused`."""
    conn.settimeout(PATIENCE_S)
    if read_number(conn) != base.RPC_MAGIC:
        raise Refused("not a TVM RPC client")
    words = read_text(conn).split()
    if not words or words[0] != f"client:{match_key}":
        conn.sendall(struct.pack("<i", base.RPC_CODE_MISMATCH))
        raise Refused("a key that is not this phone's, or no longer")
    conn.sendall(struct.pack("<i", base.RPC_CODE_SUCCESS))
    send_text(conn, f"server:{key}")
    conn.setblocking(True)
    return parse_time_limit(words)


def parse_time_limit(words: list[str]) -> float | None:
    """The value of ``-timeout=SECONDS`` among a client's words."""
    for word in words:
        if word.startswith("-timeout="):
            try:
                return float(word.removeprefix("-timeout=")) or None
            except ValueError as error:
                raise Refused(f"a time limit of {word!r}") from error
    return None
