"""The server on a phone, in the hands of its shell: started detached, seen to answer, stopped by its pid file.

The server is any program with the options of :mod:`tvm_codl.device.reference.serve` that prints one line of JSON when it serves.
"""

from __future__ import annotations

import re
import shlex
import socket
import struct
import time
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from tvm_codl.device.adb.connection import AdbPhone, plain
from tvm_codl.device.adb.forward import LOOPBACK, port_of
from tvm_codl.device.adb.listing import checked_key, waits_behind
from tvm_codl.device.adb.push import FOLDER, SERVER
from tvm_codl.device.reference.serve import address, hides_from, is_loopback
from tvm_codl.errors import CodlError, DeviceError, UsageError, UserError

START_S, PAUSE_S = 30.0, 0.3
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]

#: Whether the process of the pid file is still that one: its number may belong to another by now, so its start time counts too.
#: A process that only waits to be reaped (state Z) has ended.
_ALIVE = """
alive() {
    pid= ; begun=
    [ -f server.pid ] && read -r pid begun <server.pid
    case $pid in ''|*[!0-9]*) return 1 ;; esac
    stat=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) || return 1
    set -- $stat
    [ "$#" -ge 20 ] && [ "$1" != Z ] && [ "${20}" = "$begun" ]
}
cd "$1" 2>/dev/null || { echo none; exit 0; }
"""
_STATE = _ALIVE + 'if alive; then echo "running $pid"; elif [ -f server.pid ]; then echo gone; else echo none; fi'
#: setsid, that the server outlives the shell; the pid is written by the process that becomes the server.
_START = r"""
cd "$1" && shift || exit 1
[ -x "$1" ] || { echo "$PWD/$1 is not there, or not executable"; exit 1; }
rm -f server.pid server.out
export LD_LIBRARY_PATH="$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" TMPDIR="$PWD"
setsid sh -c '
    set_out() { set -- $(sed "s/.*) //" /proc/$$/stat); echo "$$ ${20}" >server.pid; }
    set_out
    exec ./"$@"' sh "$@" </dev/null >server.out 2>server.log &
tries=0
while [ ! -s server.pid ] && [ "$tries" -lt 100 ]; do sleep 0.1 || sleep 1; tries=$((tries + 1)); done
"""
_STOP = (
    _ALIVE
    + """
if ! alive; then rm -f server.pid server.out; echo none; exit 0; fi
kill -TERM "$pid"
tries=0
while alive && [ "$tries" -lt 50 ]; do sleep 0.1 || sleep 1; tries=$((tries + 1)); done
if alive; then kill -KILL "$pid"; echo "killed $pid"; else echo "stopped $pid"; fi
rm -f server.pid server.out
"""
)


class Serve(msgspec.Struct, frozen=True):
    """How the server is to serve: at a port of its own, known to a tracker, or through a proxy (HOST:PORT, as the phone
    reaches them; with ``adb reverse`` they are on its loopback)."""

    key: str = "codl"
    port: int = 9090
    host: str = LOOPBACK
    tracker: str = ""
    proxy: str = ""


class Serving(msgspec.Struct, frozen=True):
    """A server that answered: its process on the phone, and the port that it listens at (None behind a proxy)."""

    serial: str
    pid: int
    key: str
    port: Port | None = None
    tracker: str = ""
    proxy: str = ""


class _About(msgspec.Struct, frozen=True):
    """The line that a server prints when it serves, or cannot."""

    port: Port | None = None
    key: str = ""
    host: str = ""
    tracker: str = ""
    proxy: str = ""
    error: str = ""


def start(phone: AdbPhone, how: Serve, folder: str = FOLDER, patience_s: float = START_S) -> Serving:
    """Starts the server that :func:`~tvm_codl.device.adb.push.push` put there, and waits until it answers.

    Raises :class:`UsageError` for a key or an address that is none, and for a tracker that would send clients where
    nobody listens; :class:`UserError` where one runs already; and :class:`DeviceError` with the server's own words
    where it does not answer within ``patience_s``; it is stopped then.
    """
    _check(how)
    running = state(phone, folder)
    if running:
        raise UserError(
            f"a server runs on {phone.serial} already",
            f"process {running}",
            f"tvm-codl device stop --serial {phone.serial}",
        )
    answers = _proof(phone, how)
    words = [SERVER, "--host", how.host, "--port", str(how.port), "--port-end", str(how.port + 1), "--key", how.key]
    for name, place in (("--tracker", how.tracker), ("--proxy", how.proxy)):
        words += [name, place] if place else []
    try:
        _launch(phone, folder, words)
        about = _told(phone, how, folder, patience_s, answers)
        pid = state(phone, folder)
        if not pid:
            raise _failed(phone, folder, "the server ended as soon as it served")
    except BaseException:
        stop(phone, folder)
        raise
    return Serving(phone.serial, pid, how.key, about.port, how.tracker, how.proxy)


def stop(phone: AdbPhone, folder: str = FOLDER) -> Literal["none", "stopped", "killed"]:
    """Ends the server by its pid file, by force after five seconds.  ``none`` where none ran."""
    match = re.fullmatch(r"(none|stopped|killed)(?: \d+)?", phone.read(_STOP, folder).strip())
    if match is None:
        raise DeviceError(f"{phone.serial} does not say whether the server ended", "", "tvm-codl device shell-check")
    return match[1]  # type: ignore[return-value]


def state(phone: AdbPhone, folder: str = FOLDER) -> int:
    """The server's process on the phone, 0 where none runs."""
    match = re.fullmatch(r"running (\d{1,10})", phone.read(_STATE, folder).strip())
    return int(match[1]) if match else 0


def about(phone: AdbPhone, folder: str = FOLDER) -> Serving | None:
    """The server that runs, by its own words; None where none does."""
    pid, told = state(phone, folder), _first_line(phone, folder)
    return Serving(phone.serial, pid, told.key, told.port, told.tracker, told.proxy) if pid and told else None


def start_again(phone: AdbPhone, folder: str = FOLDER) -> str:
    """The command for a server that was started and has ended by itself; empty where one runs, or none is to run."""
    if phone.read(_STATE, folder).strip() != "gone":
        return ""
    told = _first_line(phone, folder) or _About()
    words = ["tvm-codl", "device", "start", "--serial", phone.serial]
    words += ["--folder", folder] if folder != FOLDER else []
    words += ["--host", told.host] if told.host == "0.0.0.0" else []
    words += ["--port", str(told.port)] if told.port else []
    for name, value in (("--tracker", told.tracker), ("--proxy", told.proxy), ("--key", told.key)):
        words += [name, plain(value, 300)] if value else []
    return shlex.join(words)


def log(phone: AdbPhone, folder: str = FOLDER, lines: int = 12) -> list[str]:
    """The end of what the server wrote to stderr."""
    told = phone.run('tail -n "$2" "$1/server.log" 2>/dev/null', folder, str(lines)).output
    return [plain(line, 300) for line in told.splitlines() if line.strip()]


def _launch(phone: AdbPhone, folder: str, words: list[str]) -> None:
    done = phone.run(_START, folder, *words)
    if done.code != 0:
        raise DeviceError(
            f"the server cannot be started on {phone.serial}",
            plain(done.output) or f"exit code {done.code}",
            f"tvm-codl device push --serial {phone.serial}",
        )


def _check(how: Serve) -> None:
    checked_key(how.key)
    if how.tracker and how.proxy:
        raise UsageError("--tracker and --proxy exclude each other")
    for place in filter(None, (how.tracker, how.proxy)):
        address(place)
    if hides_from(how.tracker, how.host):
        raise UsageError(
            f"clients of the tracker {how.tracker} would not reach the phone at {how.host}",
            "a tracker of another machine sends them to the phone's own address",
            "add --host 0.0.0.0, on networks that you trust",
        )


def _proof(phone: AdbPhone, how: Serve) -> Callable[[_About], bool]:
    """What shows that the server answers, prepared before it starts.

    Raises :class:`DeviceError` where the tracker or the proxy does not answer.
    """
    from tvm_codl.device.ask_tracker import tracker_summary

    if how.tracker:
        place = address(how.tracker)
        before = tracker_summary(*place).get(how.key, (0, 0))[0]
        return lambda told: tracker_summary(*place).get(how.key, (0, 0))[0] > before
    if how.proxy:
        place = address(how.proxy)
        if waits_behind(*place, how.key):
            raise UserError(
                f"another phone serves the key {how.key!r} at proxy {how.proxy}",
                "a proxy takes one a key",
                "take another --key",
            )
        return lambda told: waits_behind(*place, how.key)
    return lambda told: told.port is not None and _shakes_hands(phone, told.port)


def _told(phone: AdbPhone, how: Serve, folder: str, patience_s: float, answers: Callable[[_About], bool]) -> _About:
    deadline = time.monotonic() + patience_s
    while True:
        told = _first_line(phone, folder)
        if told is not None and told.error:
            raise _failed(phone, folder, f"the server says: {plain(told.error)}")
        if told is not None and answers(told):
            return told
        if not state(phone, folder):
            raise _failed(phone, folder, "the server ended as it started")
        if time.monotonic() > deadline:
            place = how.tracker or how.proxy
            raise _failed(
                phone, folder, f"the server did not answer within {patience_s:g} s" + (f" through {place}" if place else ""),
                _reverse(phone, how) if place else "",
            )  # fmt: skip
        time.sleep(PAUSE_S)


def _reverse(phone: AdbPhone, how: Serve) -> str:
    """How the phone gets to the tracker or proxy, and the tracker's clients to the phone."""
    place = how.tracker or how.proxy
    host = address(place)[0]
    if not is_loopback(host):
        return f"adb -s {phone.serial} shell ping -c 3 {host}   (the phone's own network must lead there)"
    ways = f"--tracker {place} --port {how.port}" if how.tracker else f"--proxy {place}"
    return f"tvm-codl device forward --serial {phone.serial} {ways}   (in another terminal)"


def _failed(phone: AdbPhone, folder: str, what: str, next: str = "") -> DeviceError:
    try:
        words = log(phone, folder)
    except CodlError:
        words = []
    evidence = "\n    ".join(words) or "its log is empty"
    return DeviceError(
        f"{what} ({phone.serial})", evidence, next or f"tvm-codl device shell-check --serial {phone.serial}"
    )


def _first_line(phone: AdbPhone, folder: str) -> _About | None:
    told = phone.run('dd if="$1/server.out" bs=4096 count=1 2>/dev/null', folder).output
    line, newline, _ = told.partition("\n")
    if not newline:
        return None
    try:
        return msgspec.json.decode(line, type=_About)
    except msgspec.MsgspecError as error:
        raise DeviceError(
            f"what runs on {phone.serial} is no server of tvm_codl",
            f"it printed {plain(line, 120)!r}",
            "tvm-codl device push",
        ) from error


def _shakes_hands(phone: AdbPhone, port: int) -> bool:
    """Whether a TVM RPC server answers at a port of the phone.  It is asked with a wrong key, which takes no session."""
    from tvm.rpc import base

    from tvm_codl.device import handshake

    try:
        with (
            port_of(phone, port) as here,
            socket.create_connection((LOOPBACK, here), timeout=handshake.PATIENCE_S) as conn,
        ):
            conn.sendall(struct.pack("<i", base.RPC_MAGIC))
            handshake.send_text(conn, "client:is anyone there?")
            return handshake.read_number(conn) == base.RPC_CODE_MISMATCH
    except (OSError, handshake.Refused):
        return False
