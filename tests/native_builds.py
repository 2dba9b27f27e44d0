"""Builds the native programs that tests need, one after the other, beside the tests: ``python -m tests.native_builds``.

What fails here fails again in the test that needs it, which says why.
"""

from __future__ import annotations

import contextlib
import os

from tvm_codl.errors import UserError
from tvm_codl.runtime.compile import compile_native
from tvm_codl.runtime.server_build import compile_server


def main() -> None:
    """The plugin first, which most tests wait for; the rest takes what time the tests leave."""
    with contextlib.suppress(UserError):
        compile_native()
    os.nice(5)
    for build, name in (
        (compile_server, "host"),
        (compile_native, "address,undefined"),
        (compile_server, "linux-arm64"),
        (compile_native, "thread"),
    ):
        with contextlib.suppress(UserError):
            build(name)


if __name__ == "__main__":
    main()
