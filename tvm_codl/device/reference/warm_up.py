"""Has the reference phone's OpenCL driver compile kernels ahead, on two cores.

PoCL compiles a kernel when it runs first and holds a lock of the process meanwhile, but what it has compiled it keeps in a
folder that processes share.  So a second process runs half of a library's kernels once while the session runs the
other half.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm_codl.device.cores import CPU_CORES, GPU_CORES, named

#: Shape and type of each argument.
Arguments = Sequence[tuple[Sequence[int], str]]


class WarmUp:
    """``codl.warm_up(module, name, functions, arguments)``: runs each of ``functions`` of a library once.

    ``name`` is the uploaded file that ``module`` was loaded from; ``functions`` and ``arguments`` are JSON: names, and
    the shape and type of each argument that all of them take.
    """

    def __init__(self, work: Path) -> None:
        self.work = work
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, module: Any, name: str, functions: str, arguments: str) -> None:
        names, given = json.loads(functions), json.loads(arguments)
        theirs = names[1::2] if self._send(self.work / Path(name).name, names[1::2], given) else []
        run(module, [one for one in names if one not in theirs], given)
        if theirs:
            self._wait()

    def _send(self, path: Path, names: list[str], arguments: Arguments) -> bool:
        if not names:
            return False
        from tvm_codl.runtime import plugin

        try:
            if self._process is None:
                # The plugin is the session's, whatever is newer by now.
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
            return False  # it has crashed: the session does all of it
        return True

    def _wait(self) -> None:
        """Until the other process has answered, or has crashed: what it left the session compiles when it is timed."""
        assert self._process is not None and self._process.stdout is not None
        self._process.stdout.readline()


def run(module: Any, names: Sequence[str], arguments: Arguments) -> None:
    """Runs each function once, on arguments that hold nothing."""
    import tvm

    device = tvm.device("opencl", 0)
    arrays = [tvm.nd.empty(tuple(shape), dtype, device) for shape, dtype in arguments]
    for name in names:
        module.get_function(name)(*arrays)
    device.sync()


def main() -> None:
    """One library a line, answered with an empty line."""
    if cores := {*named(CPU_CORES), *named(GPU_CORES)}:
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
