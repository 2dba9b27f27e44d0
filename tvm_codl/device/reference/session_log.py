"""SessionLog: what a session writes to stderr passes through the server, which keeps the last lines."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque

KEPT = 12
#: Of a line, so that a session that writes no line ends does not fill the server's memory.
LONGEST = 500


class SessionLog:
    """A pipe: :attr:`writer` becomes the session's stderr, and :meth:`read` passes on what has come, without waiting.

    By a pipe and not by a thread: the server forks, and so must have one thread only.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._unfinished = ""
        #: Whether nothing can come any more: the pipe is then always ready.
        self.ended = False

    def fileno(self) -> int:
        return self._reader

    def read(self) -> None:
        """Writes what has come to this process's stderr, and keeps its last lines."""
        with contextlib.suppress(BlockingIOError):
            while words := os.read(self._reader, 1 << 16):
                with contextlib.suppress(OSError):  # nobody reads the server's own log
                    os.write(sys.stderr.fileno(), words)
                *lines, rest = (self._unfinished + words.decode(errors="replace")).split("\n")
                self._lines.extend(line.rstrip()[:LONGEST] for line in lines if line.strip())
                self._unfinished = rest[-LONGEST:]
            self.ended = True

    @property
    def last_lines(self) -> tuple[str, ...]:
        rest = (self._unfinished.strip(),) if self._unfinished.strip() else ()
        return (*self._lines, *rest)[-KEPT:]

    def close_writer(self) -> None:
        """In the server, once the session has its own copy."""
        os.close(self.writer)

    def close(self) -> None:
        os.close(self._reader)
