"""Starts the server on a phone detached from its shell, waits for its answer, stops it by its pid file.

The server is any program with the options of :mod:`tvm_codl.device.reference.serve` that prints one line of JSON when it
serves.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from tvm_codl.device.adb.connection import AdbPhone, sanitize
from tvm_codl.device.adb.forward import LOOPBACK, forwarded_port
from tvm_codl.device.adb.listing import check_key, is_waiting_at_proxy
from tvm_codl.device.adb.push import FOLDER, SERVER
from tvm_codl.device.reference.serve import is_hidden, is_loopback, parse_address
from tvm_codl.errors import CodlError, DeviceError, UsageError, UserError

START_S, PAUSE_S = 30.0, 0.3
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]

#: The pid may belong to another process by now, so its start time must match too.  A zombie (state Z) has ended.
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
#: setsid lets the server outlive the shell; the process that becomes the server writes its pid.
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


class ServeOptions(msgspec.Struct, frozen=True):
    """How to serve: at a port, known to a tracker, or through a proxy (HOST:PORT, as the phone reaches them; with
    ``adb reverse`` they are on its loopback)."""

    key: str = "codl"
    port: int = 9090
    host: str = LOOPBACK
    tracker: str = ""
    proxy: str = ""


class RunningServer(msgspec.Struct, frozen=True):
    """A server that answered: its process on the phone, and the port where it listens (None behind a proxy)."""

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


def start(phone: AdbPhone, how: ServeOptions, folder: str = FOLDER, patience_s: float = START_S) -> RunningServer:
    """Starts the server that :func:`~tvm_codl.device.adb.push.push` put there, and waits until it answers.

    Raises :class:`UsageError` for a bad key or address, and for a tracker that would send clients where nobody listens;
    :class:`UserError` where a server runs already; and :class:`DeviceError` with the server's own words where it does not
    answer within ``patience_s``; it is stopped then.
    """
    _check_options(how)
    running = server_pid(phone, folder)
    if running:
        what, stop_it = f"a server runs on {phone.serial} already", f"tvm-codl device stop --serial {phone.serial}"
        raise UserError(what, f"process {running}", stop_it)
    answers = _make_probe(phone, how)
    words = [SERVER, "--host", how.host, "--port", str(how.port), "--port-end", str(how.port + 1), "--key", how.key]
    for name, place in (("--tracker", how.tracker), ("--proxy", how.proxy)):
        words += [name, place] if place else []
    try:
        launch = phone.run(_START, folder, *words)
        if launch.code != 0:
            evidence = sanitize(launch.output) or f"exit code {launch.code}"
            push_it = f"tvm-codl device push --serial {phone.serial}"
            raise DeviceError(f"the server cannot be started on {phone.serial}", evidence, push_it)
        about = _await_answer(phone, how, folder, patience_s, answers)
        pid = server_pid(phone, folder)
        if not pid:
            raise _start_error(phone, folder, "the server ended as soon as it served")
    except BaseException:
        stop(phone, folder)
        raise
    return RunningServer(phone.serial, pid, how.key, about.port, how.tracker, how.proxy)


def stop(phone: AdbPhone, folder: str = FOLDER) -> Literal["none", "stopped", "killed"]:
    """Ends the server by its pid file, by force after five seconds.  ``none`` where none ran."""
    match = re.fullmatch(r"(none|stopped|killed)(?: \d+)?", phone.read(_STOP, folder).strip())
    if match is None:
        raise DeviceError(f"{phone.serial} does not say whether the server ended", "", "tvm-codl device shell-check")
    return match[1]  # type: ignore[return-value]


def server_pid(phone: AdbPhone, folder: str = FOLDER) -> int:
    """The server's process on the phone, 0 where none runs."""
    match = re.fullmatch(r"running (\d{1,10})", phone.read(_STATE, folder).strip())
    return int(match[1]) if match else 0


def find_server(phone: AdbPhone, folder: str = FOLDER) -> RunningServer | None:
    """The running server, by its own words; None where there is none."""
    pid, about = server_pid(phone, folder), _read_about(phone, folder)
    return (
        RunningServer(phone.serial, pid, about.key, about.port, about.tracker, about.proxy) if pid and about else None
    )


def restart_command(phone: AdbPhone, folder: str = FOLDER) -> str:
    """The command for a server that was started and has ended by itself; empty where one runs or was stopped."""
    if phone.read(_STATE, folder).strip() != "gone":
        return ""
    about = _read_about(phone, folder) or _About()
    words = ["tvm-codl", "device", "start", "--serial", phone.serial]
    words += ["--folder", folder] if folder != FOLDER else []
    words += ["--host", about.host] if about.host == "0.0.0.0" else []
    words += ["--port", str(about.port)] if about.port else []
    for name, value in (("--tracker", about.tracker), ("--proxy", about.proxy), ("--key", about.key)):
        words += [name, sanitize(value, 300)] if value else []
    return shlex.join(words)


def _check_options(how: ServeOptions) -> None:
    check_key(how.key)
    if how.tracker and how.proxy:
        raise UsageError("--tracker and --proxy exclude each other")
    for place in filter(None, (how.tracker, how.proxy)):
        parse_address(place)
    if is_hidden(how.host, how.tracker):
        raise UsageError(
            f"clients of the tracker {how.tracker} would not reach the phone at {how.host}",
            "a tracker of another machine sends them to the phone's own address",
            "add --host 0.0.0.0, on networks that you trust",
        )


def _make_probe(phone: AdbPhone, how: ServeOptions) -> Callable[[_About], bool]:
    """A function that checks whether the server answers; made before the server starts.

    Raises :class:`DeviceError` where the tracker or the proxy does not answer.
    """
    from tvm_codl.device.tracker_client import tracker_summary

    if how.tracker:
        place = parse_address(how.tracker)
        before = tracker_summary(*place).get(how.key, (0, 0))[0]
        return lambda about: tracker_summary(*place).get(how.key, (0, 0))[0] > before
    if how.proxy:
        place = parse_address(how.proxy)
        if is_waiting_at_proxy(*place, how.key):
            what = f"another phone serves the key {how.key!r} at proxy {how.proxy}"
            raise UserError(what, "a proxy takes one phone per key", "take another --key")
        return lambda about: is_waiting_at_proxy(*place, how.key)
    return lambda about: about.port is not None and _is_rpc_server(phone, about.port)


def _await_answer(
    phone: AdbPhone, how: ServeOptions, folder: str, patience_s: float, answers: Callable[[_About], bool]
) -> _About:
    deadline = time.monotonic() + patience_s
    while True:
        about = _read_about(phone, folder)
        if about is not None and about.error:
            raise _start_error(phone, folder, f"the server says: {sanitize(about.error)}")
        if about is not None and answers(about):
            return about
        if not server_pid(phone, folder):
            raise _start_error(phone, folder, "the server ended as it started")
        if time.monotonic() > deadline:
            place = how.tracker or how.proxy
            what = f"the server did not answer within {patience_s:g} s" + (f" through {place}" if place else "")
            raise _start_error(phone, folder, what, _connect_command(phone, how) if place else "")
        time.sleep(PAUSE_S)


def _connect_command(phone: AdbPhone, how: ServeOptions) -> str:
    """How to connect the phone with the tracker or proxy, and the tracker's clients with the phone."""
    place = how.tracker or how.proxy
    host = parse_address(place)[0]
    if not is_loopback(host):
        return f"adb -s {phone.serial} shell ping -c 3 {host}   (the phone's own network must lead there)"
    ways = f"--tracker {place} --port {how.port}" if how.tracker else f"--proxy {place}"
    return f"tvm-codl device forward --serial {phone.serial} {ways}   (in another terminal)"


def _start_error(phone: AdbPhone, folder: str, what: str, next: str = "") -> DeviceError:
    """With the end of what the server wrote to stderr."""
    lines: list[str] = []
    with contextlib.suppress(CodlError):
        output = phone.run('tail -n 12 "$1/server.log" 2>/dev/null', folder).output
        lines = [sanitize(line, 300) for line in output.splitlines() if line.strip()]
    evidence = "\n    ".join(lines) or "its log is empty"
    remedy = next or f"tvm-codl device shell-check --serial {phone.serial}"
    return DeviceError(f"{what} ({phone.serial})", evidence, remedy)


def _read_about(phone: AdbPhone, folder: str) -> _About | None:
    output = phone.run('dd if="$1/server.out" bs=4096 count=1 2>/dev/null', folder).output
    line, newline, _ = output.partition("\n")
    if not newline:
        return None
    try:
        return msgspec.json.decode(line, type=_About)
    except msgspec.MsgspecError as error:
        what = f"what runs on {phone.serial} is no server of tvm_codl"
        raise DeviceError(what, f"it printed {sanitize(line, 120)!r}", "tvm-codl device push") from error


def _is_rpc_server(phone: AdbPhone, port: int) -> bool:
    """Whether a TVM RPC server answers at a port of the phone.  It gets a wrong key, so no session starts."""
    from tvm.rpc import base

    from tvm_codl.device import handshake

    try:
        with forwarded_port(phone, port) as here, handshake.dial(LOOPBACK, here) as conn:
            handshake.send_text(conn, "client:is anyone there?")
            return handshake.read_number(conn) == base.RPC_CODE_MISMATCH
    except (OSError, handshake.Refused):
        return False
