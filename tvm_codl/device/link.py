"""The socket under an RPC session, found so that it can be cut: TVM offers no way to leave a call that never returns."""

from __future__ import annotations

import contextlib
import os
import socket
import stat

FOLDER = "/dev/fd"  # Linux and macOS
#: A peer that has vanished is noticed after two minutes; a kernel that works for hours is none.
KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


def notice_silence(connection: socket.socket) -> None:
    """A peer whose machine vanished must not be waited for, for ever: its connection breaks after a while."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE:
        if hasattr(socket, option):  # macOS names the first one otherwise
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class Link:
    """Made before the session connects; :meth:`find` afterwards knows the socket that is new."""

    def __init__(self) -> None:
        self._before = _sockets()
        self._found: tuple[int, int] | None = None

    def find(self, address: tuple[str, int]) -> bool:
        """Looks for the new connection to ``address``, which from then on breaks if its peer vanishes.

        False where it is not there, or not alone.
        """
        names = _resolved(address)
        new = [known for known, peer in _sockets().items() if known not in self._before and peer in names]
        self._found = new[0] if len(new) == 1 else None
        if self._found is None:
            return False
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._found[0])) as connection:
            notice_silence(connection)
        return True

    def cut(self) -> bool:
        """Shuts the connection down for both sides.  False where there is none, or no longer."""
        if self._found is None:
            return False
        fd, inode = self._found
        try:
            copy = os.dup(fd)
        except OSError:
            return False
        # The number may belong to another file by now.
        if os.fstat(copy).st_ino != inode:
            os.close(copy)
            return False
        with socket.socket(fileno=copy) as connection, contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        self._found = None
        return True


def _sockets() -> dict[tuple[int, int], tuple[str, int]]:
    """The peers of this process's connections, by descriptor and inode."""
    found = {}
    for name in os.listdir(FOLDER):
        with contextlib.suppress(OSError):  # closed meanwhile, or not connected
            status = os.fstat(int(name))
            if not stat.S_ISSOCK(status.st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                peer = connection.getpeername()
            if isinstance(peer, tuple):
                found[int(name), status.st_ino] = (str(peer[0]), int(peer[1]))
    return found


def _resolved(address: tuple[str, int]) -> set[tuple[str, int]]:
    host, port = address
    return {(str(found[4][0]), port) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
