"""The adb server's address.  In a file of its own: ``adbutils`` reads the same variables on import and crashes on a bad port."""

from __future__ import annotations

import os

from tvm_codl.errors import UsageError


def adb_address() -> tuple[str, int]:
    """``ANDROID_ADB_SERVER_HOST`` and ``ANDROID_ADB_SERVER_PORT``, by default 127.0.0.1:5037.  Raises :class:`UsageError`."""
    port = os.environ.get("ANDROID_ADB_SERVER_PORT", "5037")
    if not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65536:
        raise UsageError("ANDROID_ADB_SERVER_PORT is not a port", repr(port), "unset ANDROID_ADB_SERVER_PORT")
    return os.environ.get("ANDROID_ADB_SERVER_HOST") or "127.0.0.1", int(port)
