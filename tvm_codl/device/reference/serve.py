"""Starting the reference phone: its options, its environment, its process."""

from __future__ import annotations

import argparse
import os
import sys

from tvm_codl.device.cores import phone_environment
from tvm_codl.errors import UsageError

LOOPBACK = "127.0.0.1"


def parser(arguments: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The server process's options."""
    arguments.add_argument("--host", default=LOOPBACK)
    arguments.add_argument("--port", type=int, default=9090)
    arguments.add_argument("--port-end", type=int, default=9199)
    arguments.add_argument("--tracker", default="")
    arguments.add_argument("--proxy", default="")
    arguments.add_argument("--key", default="codl")
    arguments.add_argument("--work-dir", default="")
    arguments.add_argument("--parent", type=int, default=None)
    return arguments


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches an address."""
    return host in (LOOPBACK, "localhost", "::1")


def hides_from(tracker: str, host: str) -> bool:
    """Whether clients of a tracker (``host:port``) do not reach a server at ``host``: a tracker of another machine sends
    them to the server's machine's own address.  Raises :class:`UsageError` for an address that is none."""
    return bool(tracker) and is_loopback(host) and not is_loopback(address(tracker)[0])


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

    plugin.path()  # builds it where it is missing, with the compiler's words on failure
    environment = {**os.environ, **phone_environment()}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command(**options), environment)


def address(text: str) -> tuple[str, int]:
    """``host:port`` as a pair.  Raises :class:`UsageError`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"{text!r} is not host:port", "", f"for example {LOOPBACK}:9190")
    return host.strip("[]"), int(port)
