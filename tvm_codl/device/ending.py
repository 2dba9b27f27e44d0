"""Ending: how a session ended that did not end well.  The phone keeps it, and the next session tells the client."""

from __future__ import annotations

import msgspec


class Ending(msgspec.Struct, frozen=True):
    """``how`` as in "ended by SIGSEGV" or "was killed at its time limit"; ``lines`` are the last of the session's log."""

    how: str
    lines: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """For a person; several lines where the session left a log."""
        words = "".join(f"\n    {line}" for line in self.lines)
        return f"the session {self.how}" + (f"; its last words:{words}" if words else "")
