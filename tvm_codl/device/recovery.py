"""Recovery: calls on a phone that may die or hang, and another session after it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm

from tvm_codl.device.deadline import Result, TimeUp, call_within
from tvm_codl.errors import CodlError, DeviceError
from tvm_codl.runtime.error_text import last_line

#: Seconds that a call has to end after its session was cut.
LEAVE_S = 5.0

Log = Callable[[str], None]


class Lost(Exception):
    """The phone's session has ended, or cannot be used any more because a call, ``late``, does not return."""

    def __init__(self, words: str, late: TimeUp | None = None) -> None:
        super().__init__(words)
        self.late = late


class Recovery:
    """Calls on ``phone`` (:class:`~tvm_codl.device.connect.Phone`), whose session it opens anew when it was lost.

    ``losses`` is how often in a row it does so: what succeeds in between is reported by :meth:`succeeded`.  ``loaded``
    holds what was loaded in the present session, and is empty in a new one.
    """

    def __init__(self, phone: Any, losses: int, log: Log) -> None:
        self.phone, self.log = phone, log
        self._most, self._losses = losses, 0
        self._opened, self._loaded = -1, dict[Any, Any]()
        self._stuck: list[object] = []
        #: How the last session ended that was lost, in the phone's words; empty where it gives none.
        self.how = ""

    @property
    def loaded(self) -> dict[Any, Any]:
        if self._opened != self.phone.opened:
            self._opened, self._loaded = self.phone.opened, {}
        return self._loaded

    def succeeded(self) -> None:
        self._losses = 0

    def call(self, limit_s: float, work: Callable[[], Result]) -> Result:
        """``work`` on the phone.  Raises :class:`TimeUp`, :class:`Lost`, and the phone's own errors."""
        try:
            return call_within(limit_s, work)
        except (CodlError, tvm.error.TVMError, OSError) as error:
            if not isinstance(error, OSError) and self.phone.alive():
                raise
            raise Lost(last_line(error)) from error

    def recover(self, error: Lost | TimeUp, patience_s: float) -> None:
        """Waits ``patience_s`` for another session.  Raises :class:`DeviceError` where there is none, or after too many losses."""
        late = error if isinstance(error, TimeUp) else error.late
        self._losses += 1
        self.phone.drop()
        if late is not None:
            late.thread.join(LEAVE_S)
            if late.thread.is_alive():  # it holds a lock that freeing what was loaded would wait for
                self._stuck.append(self._loaded)
            else:
                self._stuck.clear()
        self._loaded = {}
        if self._losses > self._most:
            why = self.phone.why_lost()
            evidence = "\n    ".join(filter(None, (str(error), why)))
            raise DeviceError("the phone goes away again and again", evidence, "" if why else "look at its log")
        self.log(f"the phone's session has ended ({error}); opening another")
        self.phone.reopen(patience_s, self.log)
        ending = self.phone.last_ending
        self.how = f"the session {ending.how}" if ending is not None else ""
        if ending is not None:
            self.log(ending.text)
