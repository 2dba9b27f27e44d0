"""What made something that is kept: the sources of this package, and the TVM that is installed.  Imports no TVM."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
from pathlib import Path


@functools.cache
def code_digest(*folders: str) -> bytes:
    """Of the sources in some folders of the package: what they made before may differ from what they make now."""
    digest = hashlib.sha256()
    for folder in folders:
        for source in sorted((Path(__file__).parent / folder).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.digest()


def tvm_version() -> str:
    """TVM's version, without importing it, which takes a second."""
    spec = importlib.util.find_spec("tvm")
    if spec is not None and spec.origin is not None:
        stated = Path(spec.origin).parent / "_ffi" / "libinfo.py"
        if stated.exists() and (found := re.search(r'^__version__ = "(.+)"', stated.read_text(), re.MULTILINE)):
            return found[1]
    import tvm

    return str(tvm.__version__)
