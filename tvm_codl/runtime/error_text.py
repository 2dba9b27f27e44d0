"""TVM's errors in one line."""

from __future__ import annotations


def last_line(error: BaseException) -> str:
    """``Type: last line`` of an error, cut to 300 characters: TVM puts a whole stack before the message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"[:300]
