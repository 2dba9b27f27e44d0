"""``tvm-codl device forward``."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from typing import TYPE_CHECKING

import click

from tvm_codl.cli.device_options import on_phone
from tvm_codl.cli.options import json_option
from tvm_codl.cli.output import print_json, talk
from tvm_codl.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from tvm_codl.device.adb.connection import AdbPhone
    from tvm_codl.device.adb.forward import Forwarding, Mapping

WATCH_S = 2.0


@click.command("forward")
@on_phone
@click.option("--tracker", default="", metavar="HOST:PORT", help="This machine's tracker, for the phone.")
@click.option("--proxy", default="", metavar="HOST:PORT", help="This machine's proxy, for the phone.")
@click.option("--port", type=click.IntRange(1, 65535), help="The server's port on the phone, for this machine.")
@click.option("--remove", is_flag=True, help="Take down what an earlier forward left behind.")
@json_option
def forward(
    phone: AdbPhone, folder: str, tracker: str, proxy: str, port: int | None, remove: bool, as_json: bool
) -> None:
    """Connect ports of this machine and of the phone over USB, until interrupted.

    A tracker's phone needs both: the tracker for the phone, and the phone's port under the same number here.
    """
    from tvm_codl.device.adb.forward import Forwarding, Mapping, remove_stale

    if remove:
        if tracker or proxy or port:
            raise UsageError("--remove takes down all that was left and excludes the other options")
        removed, in_use = remove_stale(phone)
        _show(removed, as_json)
        talk(
            f"{len(removed)} taken down"
            + ("; another forward still runs: interrupt it to take down its own" if in_use else "")
        )
        return
    mappings = tuple(_mapping(kind, place) for kind, place in (("tracker", tracker), ("proxy", proxy)) if place)
    mappings += (Mapping("forward", port, port, "server"),) if port else ()
    if not mappings:
        raise UsageError(
            "what is to be connected?", "", "--port 9090, --tracker 127.0.0.1:9190 or --proxy 127.0.0.1:9090"
        )
    signal.signal(signal.SIGHUP, lambda number, frame: sys.exit(128 + number))
    with Forwarding(phone, mappings) as up:
        _show(list(mappings), as_json)
        sys.stdout.flush()
        talk("until interrupted (Ctrl-C)")
        _keep(up, folder)


def _mapping(kind: str, place: str) -> Mapping:
    from tvm_codl.device.adb.forward import Mapping
    from tvm_codl.device.reference.serve import parse_address

    host, port = parse_address(place)
    if host not in ("127.0.0.1", "localhost"):
        start, trust = "tvm-codl device start", ""
        if kind == "tracker":  # it sends clients to the phone's own address
            start, trust = f"{start} --host 0.0.0.0", ", on networks that you trust"
        raise UsageError(
            f"{host} is not this machine's loopback",
            "adb reverse leads to this machine only",
            f"give the phone that address itself{trust}: {start} --{kind} {place}",
        )
    return Mapping("reverse", port, port, kind)


def _show(mappings: list[Mapping], as_json: bool) -> None:
    if as_json:
        print_json(mappings)
    else:
        for mapping in mappings:
            click.echo(str(mapping))


def _keep(up: Forwarding, folder: str) -> None:
    """Until a signal; sets up again what was lost when the phone was unplugged."""
    away = False
    while True:
        time.sleep(WATCH_S)
        restored: list[str] = []
        there = up.restore(restored.append)
        for words in restored:
            talk(words)
        back = there and away
        if there == away:
            away = not there
            talk("the phone is away; waiting" if away else "the phone is back")
        if back or restored:
            _look_for_server(up.phone, folder)


def _look_for_server(phone: AdbPhone, folder: str) -> None:
    """Another USB mode ends the phone's adb, and on some phones all that its shell had started."""
    from tvm_codl.device.adb.server import restart_command

    with contextlib.suppress(DeviceError):  # away again: it is looked for when it is back
        if command := restart_command(phone, folder):
            talk(f"the server on the phone has ended; next, in another terminal: {command}")
