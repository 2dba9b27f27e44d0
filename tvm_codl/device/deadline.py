"""A time limit on calls that may never return."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

SLICE_S = 0.25
Result = TypeVar("Result")


class TimeUp(Exception):
    """The work did not end in time.  ``thread`` still runs it."""

    def __init__(self, seconds: float, thread: threading.Thread) -> None:
        super().__init__(f"not done within {seconds:g} s")
        self.seconds, self.thread = seconds, thread


def call_within(seconds: float, work: Callable[[], Result]) -> Result:
    """The result of ``work``, run in a thread of its own: a silent peer does not block the caller.

    Raises what ``work`` raises, and :class:`TimeUp`.  Time in which this whole process was stopped (a sleeping computer, a
    stopped job) does not count: the peer was not slow then.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    left = seconds
    while left > 0 and thread.is_alive():
        before = time.monotonic()
        thread.join(min(SLICE_S, left))
        left -= min(time.monotonic() - before, 2 * SLICE_S)
    if not outcome.done():
        raise TimeUp(seconds, thread)
    return outcome.result()
