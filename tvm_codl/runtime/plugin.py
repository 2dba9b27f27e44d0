"""Loads the native plugin: TVM's OpenCL device and the co-executor."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

from tvm_codl.errors import DeviceError
from tvm_codl.runtime.compile import compile_native


def path() -> Path:
    """The plugin's library; ``TVM_CODL_PLUGIN`` names another build (a sanitized one in tests).  Built if missing."""
    named = os.environ.get("TVM_CODL_PLUGIN")
    return Path(named) if named else compile_native()


@cache
def load() -> None:
    """Loads the plugin into this process, once.  libtvm must come first: the plugin takes its symbols from there."""
    import tvm  # noqa: F401

    try:
        ctypes.CDLL(str(path()), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise DeviceError(
            "the native plugin does not load", str(error), "python -m tvm_codl.runtime.compile"
        ) from error
