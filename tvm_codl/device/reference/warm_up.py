"""Compiles a library's OpenCL kernels ahead of time, on two cores.

PoCL compiles a kernel at its first run, under a lock of the process, into a cache folder that processes share.  So a second
process runs half of a library's kernels once while the session runs the other half.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm_codl.device.cores import CPU_CORES, GPU_CORES, cores_from_env

#: Shape and type of each argument.
Arguments = Sequence[tuple[Sequence[int], str]]


class WarmUp:
    """``codl.warm_up(module, name, functions, arguments)``: runs each of ``functions`` of a library once.

    ``name`` is the uploaded file of ``module``; ``functions`` and ``arguments`` are JSON: names, and the shape and type
    of each argument, the same for all functions.
    """

    def __init__(self, work: Path) -> None:
        self.work = work
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, module: Any, name: str, functions: str, arguments: str) -> None:
        names, parsed = json.loads(functions), json.loads(arguments)
        shared = self._send_to_helper(self.work / Path(name).name, names[1::2], parsed)
        run(module, names[::2] if shared else names, parsed)
        if shared:
            self._await_helper()

    def _send_to_helper(self, path: Path, names: list[str], arguments: Arguments) -> bool:
        if not names:
            return False
        from tvm_codl.runtime import plugin

        try:
            if self._process is None:
                # The session's plugin, even if a newer one exists by now.
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tvm_codl.device.reference.warm_up"],
                    env={**os.environ, "TVM_CODL_PLUGIN": str(plugin.path())},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([str(path), names, arguments]) + "\n")
            self._process.stdin.flush()
        except OSError:
            return False  # it has crashed: the session runs all of them
        return True

    def _await_helper(self) -> None:
        """Waits until the helper has answered or crashed; then the session compiles the rest when it times them."""
        assert self._process is not None and self._process.stdout is not None
        self._process.stdout.readline()


def run(module: Any, names: Sequence[str], arguments: Arguments) -> None:
    """Runs each function once, on uninitialized arguments."""
    import tvm

    device = tvm.device("opencl", 0)
    arrays = [tvm.nd.empty(tuple(shape), dtype, device) for shape, dtype in arguments]
    for name in names:
        module.get_function(name)(*arrays)
    device.sync()


def main() -> None:
    """Reads one library per line, answers with an empty line."""
    if cores := {*cores_from_env(CPU_CORES), *cores_from_env(GPU_CORES)}:
        os.sched_setaffinity(0, cores)
    import tvm

    from tvm_codl.runtime import plugin

    plugin.load()
    for line in sys.stdin:
        path, names, arguments = json.loads(line)
        run(tvm.runtime.load_module(path), names, arguments)
        print(flush=True)


if __name__ == "__main__":
    main()
