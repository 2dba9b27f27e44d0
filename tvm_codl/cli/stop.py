"""How a command stops on SIGTERM and SIGINT: with one line, within seconds, and with nothing left running."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: A command that has not ended so long after the signal is inside a compiler, or has swallowed the exception: it is ended.
GRACE_S = 5.0
AGAIN_S = 0.2


class Stopped(BaseException):
    """A signal came.  No :class:`Exception`: nothing that handles errors may take it for one."""


class Stop:
    """Catches the signals of a process.  ``number`` is the one that came first, 0 before."""

    def __init__(self) -> None:
        self.number = 0
        self._raised = False

    def catch(self) -> None:
        """From now on a signal raises :class:`Stopped` in the main thread, which must be the one that calls this."""
        # Never closed: a thread that wakes while Python ends is ended by force, and takes the process with it.
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        # Python's own handlers wait until native code returns; this is written at once.
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=_forget)
        sys.unraisablehook = self._unraisable
        for number in SIGNALS:
            signal.signal(number, self._raise)
        threading.Thread(target=self._watch, args=(reader,), daemon=True).start()

    @property
    def code(self) -> int:
        """The exit code, as shells count it."""
        return 128 + self.number

    @property
    def words(self) -> str:
        name = signal.Signals(self.number).name
        return f"stopped by {name}; what was measured is kept, and the same command goes on from there"

    def _raise(self, number: int, frame: FrameType | None) -> None:
        # A second one must not interrupt what cleans up behind the first.  In a finalizer Python drops the exception, and
        # TVM, which waits for the phone there, aborts: the watcher sends the signal again.
        if not self._raised and not _is_finalizing(frame):
            self.number, self._raised = number, True
            raise Stopped

    def _unraisable(self, what: sys.UnraisableHookArgs) -> None:
        """Python drops what is raised while it forks: then the exception is raised again, later."""
        if what.exc_type is Stopped:
            self._raised = False
        else:
            sys.__unraisablehook__(what)

    def _watch(self, reader: int) -> None:
        while not set(SIGNALS).intersection(came := os.read(reader, 64)):
            pass
        self.number = self.number or next(number for number in came if number in SIGNALS)
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until:
            time.sleep(AGAIN_S)
            if not self._raised:
                signal.pthread_kill(threading.main_thread().ident or 0, self.number)
        for child in multiprocessing.active_children():
            with contextlib.suppress(OSError):
                os.killpg(child.pid or 0, signal.SIGKILL)  # a build with its compilers
        print(self.words, file=sys.stderr, flush=True)
        os._exit(self.code)


def _is_finalizing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def _forget() -> None:
    """In a forked child: its signals are its own."""
    with contextlib.suppress(ValueError):  # forked by another thread than the main one
        signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
