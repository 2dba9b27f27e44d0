"""The native server's processes for the tests, on this machine and, emulated, on others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
from tvm.rpc import base

from tests.phone.servers import Server
from tvm_codl.device.cores import phone_environment
from tvm_codl.runtime.platforms import platform
from tvm_codl.runtime.server_build import compile_server

MAGIC = struct.pack("<i", base.RPC_MAGIC)
STOP_S = 20.0


@contextlib.contextmanager
def native_server(folder: Path, name: str = "host", **options: object) -> Iterator[Server]:
    """A native server of the platform ``name``, with the options ``--NAME VALUE``; its log is in ``folder``.

    An emulated one has no OpenCL: this machine's is of another processor.
    """
    target, log = platform(name), folder / "phone.log"
    line = [*target.run, str(compile_server(name))]
    for option, value in options.items():
        line += [f"--{option.replace('_', '-')}", str(value)]
    environment = {**os.environ, **phone_environment(), "TMPDIR": str(folder)}
    if target.run:
        environment = {k: v for k, v in environment.items() if not k.startswith(("CODL_", "OCL_ICD", "POCL_"))}
    with log.open("w") as stderr:
        process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=folder)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said, log.read_text()
        yield Server(process, json.loads(said), log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(STOP_S)


def hello(key: str) -> bytes:
    """A client's opening words."""
    words = f"client:{key}".encode()
    return MAGIC + struct.pack("<i", len(words)) + words


def shaken(port: int, key: str = "codl") -> socket.socket:
    """A connection that has shaken hands; what follows are packets."""
    conn = socket.create_connection(("127.0.0.1", port), timeout=30)
    conn.sendall(hello(key))
    answer = b""
    while len(answer) < 8 or len(answer) < 8 + struct.unpack_from("<i", answer, 4)[0]:
        more = conn.recv(4096)
        assert more, "the server closed the connection"
        answer += more
    assert answer[:4] == MAGIC
    return conn


def held_bytes(server: Server) -> int:
    """What the server and its sessions hold of memory that is theirs alone."""
    whole = 0
    for process in (psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            whole += process.memory_full_info().uss
    return whole
