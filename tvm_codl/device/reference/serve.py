"""Starts the reference phone's server: its options, environment and command line."""

from __future__ import annotations

import argparse
import os
import sys

from tvm_codl.device.cores import phone_environment
from tvm_codl.errors import UsageError

LOOPBACK = "127.0.0.1"


def add_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds the server process's options."""
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--port", type=int, default=9090)
    parser.add_argument("--port-end", type=int, default=9199)
    parser.add_argument("--tracker", default="")
    parser.add_argument("--proxy", default="")
    parser.add_argument("--key", default="codl")
    parser.add_argument("--work-dir", default="")
    parser.add_argument("--parent", type=int, default=None)
    return parser


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    return host in (LOOPBACK, "localhost", "::1")


def is_hidden(host: str, tracker: str) -> bool:
    """Whether a tracker's clients cannot reach a server at ``host``: a tracker (``host:port``) of another machine sends
    them to the server machine's own address.  Raises :class:`UsageError` for a bad address."""
    return bool(tracker) and is_loopback(host) and not is_loopback(parse_address(tracker)[0])


def command(**options: object) -> list[str]:
    """The command line of a server process, e.g. ``command(port=9090, key="codl")``."""
    line = [sys.executable, "-m", "tvm_codl.device.reference.server"]
    for name, value in options.items():
        if value not in (None, ""):
            line += [f"--{name.replace('_', '-')}", str(value)]
    return line


def serve(**options: object) -> None:
    """Becomes the server process; does not return.  Raises :class:`DeviceError` where there is no usable OpenCL."""
    from tvm_codl.runtime import plugin

    plugin.path()  # builds it if missing; a failure shows the compiler's words
    environment = {**os.environ, **phone_environment()}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command(**options), environment)


def parse_address(text: str) -> tuple[str, int]:
    """``host:port`` as a pair.  Raises :class:`UsageError`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"{text!r} is not host:port", "", f"for example {LOOPBACK}:9190")
    return host.strip("[]"), int(port)
