"""The socket of an RPC session, found so that it can be shut down: TVM cannot abort a call that never returns."""

from __future__ import annotations

import contextlib
import os
import socket
import stat

FOLDER = "/dev/fd"  # Linux and macOS
#: A vanished peer is detected after two minutes; a kernel that runs for hours does not count as one.
KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


def enable_keepalive(connection: socket.socket) -> None:
    """Breaks the connection a while after the peer's machine has vanished."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE:
        if hasattr(socket, option):  # macOS names the first one otherwise
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class SessionSocket:
    """Create it before the session connects; afterwards :meth:`find` looks for the new socket."""

    def __init__(self) -> None:
        self._before = _list_sockets()
        self._socket: tuple[int, int] | None = None

    def find(self, address: tuple[str, int]) -> bool:
        """Finds the new connection to ``address`` and enables keep-alive on it.

        False where there is none, or more than one.
        """
        host, port = address
        peers = {(str(info[4][0]), port) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        new = [ident for ident, peer in _list_sockets().items() if ident not in self._before and peer in peers]
        self._socket = new[0] if len(new) == 1 else None
        if self._socket is None:
            return False
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._socket[0])) as connection:
            enable_keepalive(connection)
        return True

    def shut_down(self) -> bool:
        """Shuts the connection down for both sides.  False where there is none, or no longer."""
        if self._socket is None:
            return False
        fd, inode = self._socket
        try:
            copy = os.dup(fd)
        except OSError:
            return False
        # The descriptor may belong to another file by now.
        if os.fstat(copy).st_ino != inode:
            os.close(copy)
            return False
        with socket.socket(fileno=copy) as connection, contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        self._socket = None
        return True


def _list_sockets() -> dict[tuple[int, int], tuple[str, int]]:
    """The peers of this process's connections, by descriptor and inode."""
    peers = {}
    for name in os.listdir(FOLDER):
        with contextlib.suppress(OSError):  # closed meanwhile, or not connected
            status = os.fstat(int(name))
            if not stat.S_ISSOCK(status.st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                peer = connection.getpeername()
            if isinstance(peer, tuple):
                peers[int(name), status.st_ino] = (str(peer[0]), int(peer[1]))
    return peers
