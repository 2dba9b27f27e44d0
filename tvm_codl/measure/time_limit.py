"""A time limit on what the main thread does, wherever it is: in a build, on the phone, or in a search."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from tvm_codl.errors import UsageError

#: Python drops what is raised in a finalizer and while it forks; then it is raised again after so many seconds.
AGAIN_S = 0.5


class TimeOver(BaseException):
    """The time is over.  No :class:`Exception`: nothing that handles errors may take it for one."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises :class:`TimeOver` in the block once ``seconds`` are over (infinite: never); native code ends first.

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
        if not raised:
            raised = True
            raise TimeOver

    def dropped(what: sys.UnraisableHookArgs) -> None:
        nonlocal raised
        if what.exc_type is TimeOver:
            raised = False
        else:
            hook(what)

    hook, sys.unraisablehook = sys.unraisablehook, dropped
    handler = signal.signal(signal.SIGALRM, over)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), AGAIN_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        sys.unraisablehook = hook
