"""The app's server on a JVM as a real process, and clients that use, crash and hang its sessions."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import rpc, te, tir

from rpc_apps.android_rpc import tvm4j
from tvm_codl.errors import UserError

KEY = "pixel"
SIZE = 64
#: How long the clients here let a session take: the one that hangs is ended after it.
HANG_S = 4
#: What the tests' own process has set for TVM's threads.
THREADS = ("TVM_NUM_THREADS", "TVM_BIND_THREADS")
#: How often a status is looked for, twenty times a second.
LOOKS = 2400


@cache
def compiled_server(folder: Path) -> tuple[tvm4j.Binding, Path]:
    try:
        for tool in ("java", "javac"):
            tvm4j.java_tool(tool)
    except UserError as missing:
        pytest.skip(str(missing))
    return tvm4j.compile_server(folder)


@dataclass
class JavaServer:
    """``log`` has a line for each change of its status."""

    process: subprocess.Popen[bytes]
    log: Path
    errors: Path

    def last(self) -> str:
        lines = self.log.read_text().splitlines()
        return lines[-1] if lines else ""

    def wait_for(self, words: str) -> None:
        """Until the last status holds these words.  Counts looks, not seconds: a machine that was asleep is not late."""
        for _ in range(LOOKS):
            if words in self.last():
                return
            time.sleep(0.05)
        raise AssertionError(f"not within {LOOKS} looks: {words!r} in:\n{self}")

    def __str__(self) -> str:
        return self.log.read_text() + self.errors.read_text()


@contextlib.contextmanager
def java_server(built: Path, folder: Path, mode: str, host: str, port: int, limit_s: int = 600) -> Iterator[JavaServer]:
    """Serves until the block ends; its input is a pipe, and its end is what stops it."""
    binding, classes = compiled_server(built)
    command = [tvm4j.java_tool("java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *binding.options()]
    command += ["-cp", f"{classes}:{binding.classes}", "org.tvmcodl.rpc.jvm.Main"]
    command += [mode, host, str(port), KEY, str(limit_s), str(folder / "server")]
    (folder / "server").mkdir()
    log, errors = folder / "status.log", folder / "errors.log"
    # As on a phone, where nobody has set them.
    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    with log.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err, env=environment, cwd=folder)
    try:
        yield JavaServer(process, log, errors)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(30)
        finally:
            process.kill()


def export_library(path: Path) -> None:
    """``add`` works; ``abort`` and ``pause`` call these functions of the C library: a real crash and a real hang.

    ``bind_threads`` returns TVM_BIND_THREADS of the process that it runs in, and crashes where that is not set.
    """
    a = te.placeholder((SIZE,), name="a")
    b = te.placeholder((SIZE,), name="b")
    c = te.compute((SIZE,), lambda i: a[i] + b[i], name="c")
    functions = {"add": te.create_prim_func([a, b, c]).with_attr("global_symbol", "add")}
    for name in ("abort", "pause"):
        function = tir.PrimFunc([], tir.Evaluate(tir.call_extern("int32", name)))
        functions[f"call_{name}"] = function.with_attr("global_symbol", f"call_{name}")
    value = tir.call_extern("int32", "atoi", tir.call_extern("handle", "getenv", tir.StringImm(THREADS[1])))
    body = tir.Evaluate(tir.ret(value))
    functions["bind_threads"] = tir.PrimFunc([], body).with_attr("global_symbol", "bind_threads")
    tvm.build(tvm.IRModule(functions), target="llvm").export_library(str(path))


def use(remote: rpc.RPCSession, library: Path, call: str = "add") -> None:
    """Uploads the library and calls one function of it; ``add`` checks the numbers and times it too."""
    remote.upload(str(library))
    module = remote.load_module(library.name)
    if call != "add":
        module[call]()
        return
    device = remote.cpu(0)
    generator = np.random.default_rng()
    left, right = (generator.standard_normal(SIZE).astype("float32") for _ in range(2))
    a, b = tvm.nd.array(left, device), tvm.nd.array(right, device)
    c = tvm.nd.array(np.zeros(SIZE, "float32"), device)
    module["add"](a, b, c)
    np.testing.assert_array_equal(c.numpy(), left + right)
    times = module.time_evaluator("add", device, number=3, repeat=2)(a, b, c)
    assert all(0 < one < 60 for one in times.results)


def connect(mode: str, host: str, port: int, session_s: int = 0) -> rpc.RPCSession:
    """Asks the proxy or the tracker, again and again for as long as the next session takes to register."""
    if mode == "tracker":
        return rpc.connect_tracker(host, port).request(KEY, session_timeout=session_s, max_retry=5)
    return rpc.connect(host, port, KEY, session_timeout=session_s)


def tracked_keys(host: str, port: int) -> list[str]:
    """The keys of the phones that the tracker knows, busy ones too."""
    return [str(phone["key"]) for phone in rpc.connect_tracker(host, port).summary()["server_info"]]
