"""How clients come to the reference phone: by its own port, with or without a tracker, or through a proxy."""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from tvm.rpc import base

from tvm_codl.device import handshake
from tvm_codl.device.handshake import Refused

RETRY_S = 1.0  # between attempts to reach a tracker or a proxy
PING_S = 2.0  # between questions to the tracker
UNUSED_S = 8.0  # after which a key that a client took but never used is replaced

Wait = Callable[[list[socket.socket], float], list[socket.socket]]


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Front(Protocol):
    """Where sessions come from."""

    def next_client(self, wait: Wait) -> tuple[socket.socket, str, float | None]:
        """The next client that shook hands: its connection, who it is, its time limit in seconds."""
        ...

    def sockets(self) -> list[socket.socket]:
        """What a session's process must close."""
        ...


class Listening:
    """A port of the phone's own; with ``tracker``, clients learn of it and get their key there."""

    def __init__(self, listener: socket.socket, key: str, tracker: tuple[str, int] | None) -> None:
        self.listener, self.key, self.tracker = listener, key, tracker
        self.link: socket.socket | None = None
        self.port = int(listener.getsockname()[1])

    def sockets(self) -> list[socket.socket]:
        return [self.listener] + ([self.link] if self.link else [])

    def next_client(self, wait: Wait) -> tuple[socket.socket, str, float | None]:
        match_key, offered, refused = self.key, False, 0.0
        while True:
            if self.tracker and not offered:
                match_key, offered, refused = base.random_key(self.key), True, 0.0
                if not self._offer(match_key):
                    offered = False
                    wait([], RETRY_S)
                    continue
            if self.listener in wait([self.listener], PING_S):
                conn, peer = self.listener.accept()
                try:
                    limit = handshake.welcome(conn, self.key, match_key)
                    return conn, f"{peer[0]}:{peer[1]}", limit
                except (Refused, OSError) as error:
                    say(f"refused {peer[0]}:{peer[1]}: {error}")
                    conn.close()
            elif self.link is not None:
                pending = self._ask([base.TrackerCode.GET_PENDING_MATCHKEYS])
                if pending is None:
                    offered = False
                elif match_key not in pending:
                    # A client took the key; unless it comes soon, it went away, and others wait for a key.
                    refused += PING_S
                    offered = refused < UNUSED_S
                else:
                    refused = 0.0

    def _offer(self, match_key: str) -> bool:
        """Tells the tracker that this phone is free; False where the tracker cannot be reached."""
        if self.link is None:
            try:
                self.link = socket.create_connection(self.tracker, timeout=handshake.PATIENCE_S)  # type: ignore[arg-type]
                self.link.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
                if handshake.read_number(self.link) != base.RPC_TRACKER_MAGIC:
                    raise Refused("not a TVM RPC tracker")
            except (OSError, Refused) as error:
                self._lost(error)
                return False
            about = {"key": f"server:{self.key}", "addr": (None, self.port)}
            if self._ask([base.TrackerCode.UPDATE_INFO, about]) != base.TrackerCode.SUCCESS:
                return False
            say(f"registered at tracker {self.tracker[0]}:{self.tracker[1]} as {self.key}")  # type: ignore[index]
        return self._ask([base.TrackerCode.PUT, self.key, (self.port, match_key), None]) == base.TrackerCode.SUCCESS

    def _ask(self, question: list[object]) -> Any:
        """The tracker's answer, or None where it is gone."""
        assert self.link is not None
        try:
            base.sendjson(self.link, question)
            return base.recvjson(self.link)
        except (OSError, ValueError, struct.error, Refused) as error:
            self._lost(error)
            return None

    def _lost(self, error: Exception) -> None:
        say(f"tracker {self.tracker}: {error or type(error).__name__}; trying again")
        if self.link is not None:
            self.link.close()
            self.link = None


class Proxied:
    """A proxy that both this phone and its clients connect to."""

    def __init__(self, proxy: tuple[str, int], key: str) -> None:
        self.proxy, self.key = proxy, key

    def sockets(self) -> list[socket.socket]:
        return []

    def next_client(self, wait: Wait) -> tuple[socket.socket, str, float | None]:
        while True:
            try:
                return self._through(wait)
            except (OSError, Refused) as error:
                say(f"proxy {self.proxy[0]}:{self.proxy[1]}: {error}; trying again")
                wait([], RETRY_S)

    def _through(self, wait: Wait) -> tuple[socket.socket, str, float | None]:
        conn = socket.create_connection(self.proxy, timeout=handshake.PATIENCE_S)
        try:
            conn.sendall(struct.pack("<i", base.RPC_MAGIC))
            handshake.send_text(conn, f"server:{self.key}")
            # The proxy answers when a client with this key comes.
            while conn not in wait([conn], PING_S):
                pass
            answer = handshake.read_number(conn)
            if answer == base.RPC_CODE_DUPLICATE:
                raise Refused(f"another phone already serves the key {self.key}")
            if answer != base.RPC_CODE_SUCCESS:
                raise Refused("not a TVM RPC proxy, or it dropped this phone")
            words = handshake.read_text(conn).split()
            conn.setblocking(True)
            return conn, f"{self.proxy[0]}:{self.proxy[1]} (proxy)", handshake.time_limit(words)
        except BaseException:
            conn.close()
            raise


def select_wait(extra: int) -> Wait:
    """A :data:`Wait` that also wakes for the file descriptor ``extra`` (signals), which it empties."""

    def wait(sockets: list[socket.socket], seconds: float) -> list[socket.socket]:
        ready, _, _ = select.select([*sockets, extra], [], [], seconds)  # type: ignore[type-var]
        return [s for s in sockets if s in ready]

    return wait
