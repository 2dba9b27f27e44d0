"""A time limit on what the main thread does, wherever it is: in a build, on the phone, or in a search."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from tvm_codl.errors import UsageError

#: What ended nothing is raised again after so many seconds: Python drops what is raised in a finalizer and while it forks.
AGAIN_S = 5.0


class TimeOver(BaseException):
    """The time is over.  No :class:`Exception`: nothing that handles errors may take it for one."""


@contextlib.contextmanager
def time_limit(seconds: float, again_s: float = AGAIN_S) -> Iterator[None]:
    """Raises :class:`TimeOver` in the block once ``seconds`` are over (infinite: never), and again every ``again_s`` until
    the block ends; native code ends first.

    Raises :class:`UsageError` outside the main thread, where Python handles no signals.
    """
    if seconds == math.inf:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("a time limit works in the main thread alone")
    raised = False

    def over(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        raised = True
        raise TimeOver

    handler = signal.signal(signal.SIGALRM, over)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), again_s)
        yield
    except Exception as error:
        # What is raised in native code that calls Python arrives as ctypes' SystemError, and a call to the phone that was
        # cut in two makes the next one fail.
        if raised:
            raise TimeOver from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
