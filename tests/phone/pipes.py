"""A port that leads to another, for the stand-in for adb."""

from __future__ import annotations

import contextlib
import socket
import threading


class Pipes:
    """Listens at an address and connects whoever comes to another, as adb does for a forward."""

    def __init__(self, host: str, port: int, to: tuple[str, int]) -> None:
        self._listener = socket.create_server((host, port))
        self.port, self._to = int(self._listener.getsockname()[1]), to
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            try:
                there = socket.create_connection(self._to, timeout=5)
                there.settimeout(None)
            except OSError:
                here.close()  # adb accepts first, and closes where nobody listens on the other side
                continue
            self._open += [here, there]
            for a, b in ((here, there), (there, here)):
                threading.Thread(target=_pump, args=(a, b), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
