"""How clients reach the reference phone: at its own port, with or without a tracker, or through a proxy."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from tvm.rpc import base

from tvm_codl.device import handshake
from tvm_codl.device.handshake import Refused

RETRY_S = 1.0  # between attempts to reach a tracker or a proxy
PING_S = 2.0  # between questions to the tracker
UNUSED_S = 8.0  # after which a key that a client took but never used is replaced

#: Waits for sockets and the like to become readable, at most so many seconds, and returns those that are.
Wait = Callable[[list[Any], float], list[Any]]
#: A client's connection after the handshake, its name, and its time limit in seconds.
Client = tuple[socket.socket, str, float | None]


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class DirectListener:
    """Listens at a port; registers it at ``tracker``, if given, where clients then get their key.

    As of :class:`ProxyListener`, ``next_client`` is the next that completes the handshake, and ``sockets`` are those that
    a session's process must close.
    """

    def __init__(self, listener: socket.socket, key: str, tracker: tuple[str, int] | None) -> None:
        self.listener, self.key, self.tracker = listener, key, tracker
        self.connection: socket.socket | None = None  # to the tracker
        self.port = int(listener.getsockname()[1])

    def sockets(self) -> list[socket.socket]:
        return [self.listener] + ([self.connection] if self.connection else [])

    def next_client(self, wait: Wait) -> Client:
        match_key, offered, unused_s = self.key, False, 0.0
        while True:
            if self.tracker and not offered:
                match_key, unused_s = base.random_key(self.key), 0.0
                offered = self._offer(self.tracker, match_key)
                if not offered:
                    wait([], RETRY_S)
                    continue
            if self.listener in wait([self.listener], PING_S):
                conn, peer = self.listener.accept()
                try:
                    limit = handshake.accept_client(conn, self.key, match_key)
                    return conn, f"{peer[0]}:{peer[1]}", limit
                except (Refused, OSError) as error:
                    log(f"refused {peer[0]}:{peer[1]}: {error}")
                    conn.close()
            elif self.connection is not None:
                pending = self._ask([base.TrackerCode.GET_PENDING_MATCHKEYS])
                if pending is None:
                    offered = False
                elif match_key not in pending:
                    # A client took the key; if it does not come soon, it has left and others need a key.
                    unused_s += PING_S
                    offered = unused_s < UNUSED_S
                else:
                    unused_s = 0.0

    def _offer(self, tracker: tuple[str, int], match_key: str) -> bool:
        """Tells the tracker that this phone is free; False where the tracker cannot be reached."""
        if self.connection is None:
            try:
                self.connection = handshake.dial(*tracker, base.RPC_TRACKER_MAGIC)
                if handshake.read_number(self.connection) != base.RPC_TRACKER_MAGIC:
                    raise Refused("not a TVM RPC tracker")
            except (OSError, Refused) as error:
                self._disconnect(error)
                return False
            about = {"key": f"server:{self.key}", "addr": (None, self.port)}
            if self._ask([base.TrackerCode.UPDATE_INFO, about]) != base.TrackerCode.SUCCESS:
                return False
            log(f"registered at tracker {tracker[0]}:{tracker[1]} as {self.key}")
        return self._ask([base.TrackerCode.PUT, self.key, (self.port, match_key), None]) == base.TrackerCode.SUCCESS

    def _ask(self, question: list[object]) -> Any:
        """The tracker's answer, or None where it is gone."""
        if self.connection is None:
            return None
        try:
            base.sendjson(self.connection, question)
            return base.recvjson(self.connection)
        except (OSError, ValueError, struct.error, Refused) as error:
            self._disconnect(error)
            return None

    def _disconnect(self, error: Exception) -> None:
        log(f"tracker {self.tracker}: {error or type(error).__name__}; trying again")
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class ProxyListener:
    """Waits at a proxy that both this phone and its clients connect to."""

    def __init__(self, proxy: tuple[str, int], key: str) -> None:
        self.proxy, self.key = proxy, key
        self.name = f"{proxy[0]}:{proxy[1]}"

    def sockets(self) -> list[socket.socket]:
        return []

    def next_client(self, wait: Wait) -> Client:
        while True:
            try:
                return self._await_client(wait)
            except (OSError, Refused) as error:
                log(f"proxy {self.name}: {error}; trying again")
                wait([], RETRY_S)

    def _await_client(self, wait: Wait) -> Client:
        conn = handshake.dial(*self.proxy)
        try:
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
            return conn, f"{self.name} (proxy)", handshake.parse_time_limit(words)
        except BaseException:
            conn.close()
            raise


Listener = DirectListener | ProxyListener
