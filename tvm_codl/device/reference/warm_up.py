"""Compiles a library's OpenCL kernels ahead of time, on two cores.

PoCL compiles a kernel at its first run, under a lock of the process, into a cache folder that processes share.  So a second
process runs the kernels once from the last one on while the session runs them from the first one on, until they meet.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import socket
import tempfile
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from tvm_codl.device.cores import CPU_CORES, GPU_CORES, cores_from_env
from tvm_codl.device.reference.parent import die_with_parent

#: A function, and the shape and type of each argument.
Call = tuple[str, Sequence[tuple[Sequence[int], str]]]

#: A kernel with more bytes of arguments is compiled when it is used: to make them takes as long.
MOST_BYTES = 64 << 20


class WarmUp:
    """Runs kernels of an uploaded library once, in the session and in a helper that is forked from it.

    It is made before the session uses OpenCL, which does not survive a fork.  The helper closes ``conn``, the session's
    connection.
    """

    def __init__(self, work: Path, conn: socket.socket) -> None:
        self.work = work
        self._done: set[str] = set()
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        context.Process(target=_help, args=(theirs, (self._pipe, conn), os.getpid()), daemon=True).start()
        theirs.close()

    def functions(self, module: Any, name: str, functions: str, arguments: str) -> None:
        """``codl.warm_up(module, name, functions, arguments)``: ``name`` is the uploaded file of ``module``; the others are
        JSON: names, and the shape and type of each argument, the same for all functions."""
        given = json.loads(arguments)
        self._run(module, name, [(function, given) for function in json.loads(functions)])

    def library(self, module: Any, name: str) -> None:
        """``codl.compile_kernels(module, name)``: all kernels of a co-executor's library that no earlier one had.  Leaves any
        other library alone."""
        try:
            program = module["program"]()
        except AttributeError:
            return
        calls = [call for call in kernels_of(program) if call[0] not in self._done]
        self._done.update(function for function, _ in calls)
        self._run(module, name, calls)

    def _run(self, module: Any, name: str, calls: Sequence[Call]) -> None:
        with tempfile.TemporaryDirectory(dir=self.work, prefix=".warm-up-") as folder:
            # Without a helper, which may have crashed, the session runs all of them.
            with contextlib.suppress(OSError):
                self._pipe.send((self.work / Path(name).name, calls, Path(folder)))
            run(module, enumerate(calls), Path(folder))
            with contextlib.suppress(OSError, EOFError):
                self._pipe.recv()


def kernels_of(program: str) -> list[Call]:
    """The GPU's kernels in a library's program, each once."""
    parsed = json.loads(program)
    programs = [entry["program"] for entry in parsed["plans"]] if "plans" in parsed else [parsed]
    steps = (step for each in programs for step in each["gpu"] if step["do"] == "call")
    return list({s["function"]: (s["function"], [(a["shape"], a["dtype"]) for a in s["args"]]) for s in steps}.values())


def run(module: Any, calls: Iterable[tuple[int, Call]], claims: Path) -> None:
    """Runs each function once, on zeros, up to the first that another process has claimed in the folder ``claims``.

    One that fails does so again when it is used, and is reported then.
    """
    device = tvm.device("opencl", 0)
    made: tuple[Any, list[Any]] = None, []  # candidates of one operator have the same arguments
    for number, (function, arguments) in calls:
        try:
            os.close(os.open(claims / str(number), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in arguments) > MOST_BYTES:
            continue
        with contextlib.suppress(AttributeError, tvm.error.TVMError):
            if arguments != made[0]:
                made = arguments, [tvm.nd.array(np.zeros(shape, dtype), device) for shape, dtype in arguments]
            module.get_function(function, query_imports=True)(*made[1])
            device.sync()


def _help(pipe: Connection, others: Sequence[Any], parent: int) -> None:
    """Runs what the session sends, from the end on, and answers each time.  Ends with the session."""
    die_with_parent(parent)
    for other in others:
        other.close()
    if cores := {*cores_from_env(CPU_CORES), *cores_from_env(GPU_CORES)}:
        os.sched_setaffinity(0, cores)
        del os.environ[GPU_CORES]  # PoCL's thread takes the core that the session's leaves
    while True:
        try:
            path, calls, claims = pipe.recv()
        except (EOFError, OSError):
            return
        run(tvm.runtime.load_module(str(path)), reversed(list(enumerate(calls))), claims)
        pipe.send(None)
