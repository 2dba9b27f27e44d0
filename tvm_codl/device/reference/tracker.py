"""A TVM RPC tracker in a process of its own that ends with its parent.

``python -m tvm_codl.device.reference.tracker LISTENING_FD PARENT_PID``: the parent opens the socket, so it knows the port
before the tracker runs.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time

from tvm.rpc import base
from tvm.rpc.tracker import TrackerServerHandler

WATCH_S = 0.5


def _exit_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_S)
    os._exit(0)


def main(descriptor: int, parent: int) -> None:
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    asyncio.set_event_loop(asyncio.new_event_loop())
    listener = socket.socket(fileno=descriptor)
    TrackerServerHandler(listener, base.random_key("tracker")).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
