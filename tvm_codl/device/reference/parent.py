"""A process that must not outlive the one that forked it."""

from __future__ import annotations

import ctypes
import os
import signal

SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl


def die_with_parent(parent: int) -> None:
    """Lets the kernel kill this process when the thread that forked it ends."""
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)
