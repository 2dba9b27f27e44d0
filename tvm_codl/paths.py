"""Where tvm_codl keeps its files: the cache folder, and the record store in it."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """The cache folder: ``TVM_CODL_CACHE``, by default the user's cache folder for tvm_codl."""
    return Path(os.environ.get("TVM_CODL_CACHE") or platformdirs.user_cache_dir("tvm_codl"))


def default_records() -> Path:
    """The record store that all commands share unless told otherwise."""
    return cache_dir() / "records.sqlite"
