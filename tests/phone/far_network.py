"""A network on one machine whose packets come late and get lost: every host of it is a network namespace.

What passes from one host to another are real IP packets, carried by a thread between their TUN devices; so TCP itself
has to make up for what is lost.  Linux's netem would do the same, and many kernels are built without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Of Linux's if_tun.h.
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
#: Addresses that RFC 2544 sets apart for trials of networks.
SUBNET = "198.18.77"
LARGEST_PACKET = 65536
LISTENING = "0A"  # in /proc/net/tcp
DESTINATION = slice(16, 20)  # in an IPv4 header


def unavailable() -> str:
    """Why there can be no such network here; empty where there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "iproute2's ip is not installed"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    name = f"codl-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespace can be made: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return ""


@dataclass
class Host:
    """One address of the network."""

    name: str
    address: str
    namespace: str
    device: int

    def command(self, *words: object) -> list[str]:
        """A command line that runs there."""
        return ["ip", "netns", "exec", self.namespace, *map(str, words)]

    def listens(self, port: int) -> bool:
        """Whether somebody there listens at ``port``."""
        rows = [line.split() for line in self._read("/proc/net/tcp").splitlines()[1:]]
        return any(row[1].endswith(f":{port:04X}") and row[3] == LISTENING for row in rows)

    def resent_segments(self) -> int:
        """TCP segments that had to be sent from there again."""
        lines = [line.split() for line in self._read("/proc/net/snmp").splitlines() if line.startswith("Tcp:")]
        return int(dict(zip(*lines, strict=True))["RetransSegs"])

    def _read(self, path: str) -> str:
        return subprocess.run(self.command("cat", path), check=True, capture_output=True, text=True).stdout


@dataclass
class FarNetwork:
    """Carries packets between hosts ``delay_s`` late, and loses the share ``loss`` of them."""

    hosts: dict[str, Host]
    delay_s: float
    loss: float
    #: Packets by the names of sender and receiver; ``lost`` are among them.
    passed: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: int = 0

    def between(self, a: str, b: str) -> int:
        return self.passed[a, b] + self.passed[b, a]

    def carry(self, stop: int) -> None:
        """Until something can be read from ``stop``."""
        chance = random.Random(0)
        receivers = {socket.inet_aton(host.address): host for host in self.hosts.values()}
        senders = {host.device: host for host in self.hosts.values()}
        waiting: list[tuple[float, int, Host, bytes]] = []
        count = 0
        while True:
            patience = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            ready, _, _ = select.select([*senders, stop], [], [], patience)
            if stop in ready:
                return
            for device in ready:
                packet = os.read(device, LARGEST_PACKET)
                receiver = receivers.get(packet[DESTINATION])
                if receiver is None:  # IPv6's own housekeeping, and broadcasts
                    continue
                self.passed[senders[device].name, receiver.name] += 1
                if chance.random() < self.loss:
                    self.lost += 1
                    continue
                count += 1
                heapq.heappush(waiting, (time.monotonic() + self.delay_s, count, receiver, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, receiver, packet = heapq.heappop(waiting)
                with contextlib.suppress(OSError):  # a queue that is full loses packets, as a network does
                    os.write(receiver.device, packet)


@contextlib.contextmanager
def far_network(names: Sequence[str], delay_s: float, loss: float) -> Iterator[FarNetwork]:
    """Hosts of these names; the processes on them must have ended before the network does."""
    with contextlib.ExitStack() as stack:
        hosts = {name: stack.enter_context(_host(name, number)) for number, name in enumerate(names, 1)}
        network = FarNetwork(hosts, delay_s, loss)
        reader, writer = os.pipe()
        stack.callback(os.close, reader)
        thread = threading.Thread(target=network.carry, args=(reader,), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(os.close, writer)
        yield network


@contextlib.contextmanager
def _host(name: str, number: int) -> Iterator[Host]:
    unique = f"codl-{os.getpid()}-{number}"
    address = f"{SUBNET}.{number}"
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", unique.encode(), IFF_TUN | IFF_NO_PI))
        _ip("netns", "add", unique)
        try:
            _ip("link", "set", unique, "netns", unique)
            for words in (["addr", "add", f"{address}/24", "dev", unique], ["link", "set", unique, "up"],
                          ["link", "set", "lo", "up"]):  # fmt: skip
                _ip("-n", unique, *words)
            yield Host(name, address, unique, device)
        finally:
            _ip("netns", "del", unique)
    finally:
        os.close(device)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
