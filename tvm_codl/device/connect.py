"""``connect``: a session on a phone, wherever it is, with a deadline on everything that could hang."""

from __future__ import annotations

import contextlib
import math
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import tvm
from tvm import rpc

from tvm_codl.device.deadline import Result, TimeUp, call_within
from tvm_codl.device.ending import Ending
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.device.reference.local import LocalPhone
from tvm_codl.device.reference.serve import is_loopback
from tvm_codl.device.session_socket import SessionSocket
from tvm_codl.device.soc import Soc, read_soc
from tvm_codl.device.spec import Direct, Local, Proxy, Spec, Tracker
from tvm_codl.device.tracker_client import PATIENCE_S, request_phone, tracker_summary
from tvm_codl.errors import CodlError, DeviceError
from tvm_codl.runtime.error_text import last_line
from tvm_codl.runtime.server_build import ServerBuild, coexec_id

CONNECT_S = 20.0
PING_S = 3.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
#: Between two sessions an app is missing at its tracker for a moment.
KEY_S = 3.0
#: For asking a phone how a session ended; another client may have it by then.
ENDING_S = 8.0
_RETRY = "look at its log; then run the same command again"
_AGAIN = "run the same command again"

Log = Callable[[str], None]


class Phone:
    """An open session: ``remote`` runs packed functions and takes files; ``cpu`` and ``gpu`` are its two devices.

    A session ends when the phone's process dies, at its time limit, or by :meth:`drop`; :meth:`reopen` opens another, and
    what the old one had loaded is gone.  ``opened`` counts sessions.
    """

    remote: rpc.RPCSession
    cpu: tvm.runtime.Device
    gpu: tvm.runtime.Device
    profile: DeviceProfile

    def __init__(
        self,
        place: Tracker | Proxy | Direct,
        timeout_s: float = CONNECT_S,
        session_s: float = 0.0,
        revive: Callable[[], None] = lambda: None,
        soc: Soc | None = None,
        read_log: Callable[[], str] = lambda: "",
        folder: Path | None = None,
    ) -> None:
        """Opens a session.

        ``revive`` restarts a phone that belongs to this process and has died, and ``read_log`` has the last words of its
        log.  Its sessions' folders are in ``folder``.  The facts of ``soc`` replace those that the phone reports.  Raises :class:`DeviceError` as :func:`connect`
        does.
        """
        self.where = f"{type(place).__name__.lower()} {place.host}:{place.port}, key {place.key}"
        self.opened = 0
        self._place, self._timeout_s, self._session_s, self._revive = place, timeout_s, session_s, revive
        self._soc, self._read_log, self._folder = soc or Soc(), read_log, folder
        #: How the session before this one ended, where the phone knows and it did not end well.
        self.last_ending: Ending | None = None
        self._session = ""
        self._open()

    def _open(self) -> None:
        connection = SessionSocket()
        remote, address = self._call(lambda: _open_session(self._place, self._session_s, self._timeout_s))
        connection.find(address)
        try:
            profile = self._call(lambda: _read_profile(remote, self.where))
            self.last_ending = self._call(lambda: _read_ending(remote, self._session))
            self._session = self._call(lambda: _read_session(remote))
        except BaseException:
            connection.shut_down()
            _close_session(remote)
            raise
        self.remote, self._socket, self.profile = remote, connection, profile.with_soc(self._soc)
        self.cpu, self.gpu = remote.cpu(0), remote.device("opencl", 0)
        self.opened += 1

    def _call(self, work: Callable[[], Result]) -> Result:
        try:
            return call_within(self._timeout_s, work)
        except CodlError:
            raise
        except TimeUp as error:
            evidence, remedy = "it may be busy with another client", "wait for that client"
            if self._folder is not None:
                evidence, remedy = "it is a process of this command: this machine is busy", "run it when less runs here"
            raise DeviceError(
                f"the phone at {self.where} did not answer within {self._timeout_s:g} s",
                evidence,
                f"{remedy}, or raise --rpc-timeout",
            ) from error
        except (tvm.error.TVMError, OSError, RuntimeError) as error:
            what = f"the phone at {self.where} refused or dropped the connection"
            log = self._read_log()
            raise DeviceError(
                what, "\n    ".join(filter(None, (last_line(error), log))), _AGAIN if log else _RETRY
            ) from error

    def send(self, path: Path, name: str) -> None:
        """Gives the session the file at ``path`` under ``name``."""
        if self._folder is None:
            self.remote.upload(str(path), name)
        else:  # TVM's RPC passes some 25 to 45 MB/s
            shutil.copyfile(path, self._folder / self._session / name)

    def why_lost(self) -> str:
        """How the session ended, as the phone says it; empty where that is not known.

        After the session's end only: it opens another, which ends at once.
        """
        lost = self._session
        if not lost:
            return self._read_log()
        self.drop()
        self.close()
        with contextlib.suppress(CodlError, TimeUp):
            call_within(ENDING_S, self._open)
            self.close()
            return self.last_ending.text if self.last_ending else ""
        return self._read_log()

    def alive(self) -> bool:
        """Whether the session still answers; TVM's RPC has no error type of its own for that."""
        try:
            call_within(PING_S, lambda: self.remote.get_function("codl.profile"))
        except Exception:  # whatever a broken session raises
            return False
        return True

    def drop(self) -> None:
        """Ends the session at once, whatever it is doing: a call that waits for its answer raises."""
        self._socket.shut_down()

    def close(self) -> None:
        """Ends the session in good order, or at once where it no longer answers."""
        try:
            call_within(PING_S, lambda: _close_session(self.remote))
        except TimeUp:
            self.drop()

    def reopen(self, patience_s: float, log: Log = lambda _: None) -> None:
        """Opens another session on the same phone, or on one of the same kind, as soon as one answers.

        Retries for ``patience_s`` seconds, then raises the last :class:`DeviceError`; raises at once where another kind of
        phone answers.
        """
        self.drop()
        self.close()
        before, until, pause, logged = self.profile, time.monotonic() + patience_s, FIRST_PAUSE_S, False
        while True:
            try:
                self._revive()
                self._open()
                break
            except DeviceError as error:
                if time.monotonic() + pause > until:
                    raise
                if not logged:
                    log(f"waiting for the phone at {self.where} (at most {patience_s:g} s): {error.what}")
                logged = True
                time.sleep(pause)
                pause = min(1.6 * pause, LONGEST_PAUSE_S)
        now = self.profile
        if (now.name, now.build_id) != (before.name, before.build_id):
            self.close()
            raise DeviceError(
                f"another kind of phone now serves {self.where}",
                f"{before.name}, runtime {before.build_id} before; {now.name}, runtime {now.build_id} now",
                "give each kind of phone a key of its own",
            )
        log(f"the phone at {self.where} is back")


class TrackerPhones:
    """Opens sessions on the phones that serve one key at a tracker."""

    def __init__(self, place: Tracker, timeout_s: float = CONNECT_S, soc: Soc | None = None) -> None:
        self.place, self.timeout_s, self.soc = place, timeout_s, soc

    def take(self) -> Phone | None:
        """A session on a free phone; None where none is free.

        Raises :class:`DeviceError` where there is no tracker, or where the phone does not answer in time.
        """
        _, free = tracker_summary(self.place.host, self.place.port).get(self.place.key, (0, 0))
        return Phone(self.place, self.timeout_s, soc=self.soc) if free else None


@contextlib.contextmanager
def connect(
    spec: Spec | LocalPhone | None = None,
    *,
    timeout_s: float = CONNECT_S,
    session_s: float = 0.0,
    soc: str | Path | None = None,
) -> Iterator[Phone]:
    """A session on the phone that ``spec`` names or is, by default one on this machine that lives as long as the session.

    The phone ends the session after ``session_s`` seconds (0: never).  ``soc`` is a file of GPU facts in CoDL's YAML;
    they replace what the phone reports.

    Raises :class:`UserError` for a bad ``soc`` file, :class:`DeviceError` where there is no such phone, where it does not
    answer within ``timeout_s`` seconds, and where it goes away while the caller's block runs.
    """
    facts = read_soc(soc) if soc else None
    if spec is None or isinstance(spec, Local):
        spec = LocalPhone()
    with contextlib.ExitStack() as stack:
        if isinstance(spec, LocalPhone):
            local = stack.enter_context(spec)
            phone = Phone(local.where, timeout_s, session_s, local.revive, facts, local.read_log, local.folder)
        else:
            phone = Phone(spec, timeout_s, session_s, soc=facts)
        stack.callback(phone.close)
        with translate_errors(phone.where, phone.alive, phone.why_lost):
            yield phone


@contextlib.contextmanager
def translate_errors(where: str, alive: Callable[[], bool], why_lost: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Turns TVM's errors in the block into :class:`DeviceError` if the phone is no longer ``alive``.

    ``why_lost`` is what the phone then says of its end.
    """
    try:
        yield
    except CodlError:
        raise
    except (tvm.error.TVMError, OSError) as error:
        if not alive():
            why = why_lost()
            evidence = "\n    ".join(filter(None, (last_line(error), why)))
            raise DeviceError(f"the phone at {where} went away", evidence, _AGAIN if why else _RETRY) from error
        raise


def _open_session(
    place: Tracker | Proxy | Direct, session_s: float, timeout_s: float
) -> tuple[rpc.RPCSession, tuple[str, int]]:
    """A session, and the address that it is connected to."""
    limit = math.ceil(session_s)
    if isinstance(place, Tracker):
        _await_key(place, min(KEY_S, timeout_s / 2))
        host, port, match_key = request_phone(place.host, place.port, place.key, timeout_s)
        return rpc.connect(host, port, match_key, session_timeout=limit), (host, port)
    try:
        socket.create_connection((place.host, place.port), timeout=PATIENCE_S).close()
    except OSError as error:
        kind, start = (
            ("proxy", "python -m tvm.exec.rpc_proxy --web-port 0")
            if isinstance(place, Proxy)
            else ("phone", "tvm-codl serve")
        )
        what = f"no {kind} at {place.host}:{place.port}"
        raise DeviceError(what, str(error), f"{start} --port {place.port}") from error
    return rpc.connect(place.host, place.port, place.key, session_timeout=limit), (place.host, place.port)


def _await_key(place: Tracker, patience_s: float) -> None:
    until = time.monotonic() + patience_s
    where = f"{place.host}:{place.port}"
    while place.key not in (keys := tracker_summary(place.host, place.port)):
        if time.monotonic() > until:
            # A tracker of another machine sends clients to the phone's own address.
            host = "" if is_loopback(place.host) else " --host 0.0.0.0"
            raise DeviceError(
                f"no phone serves the key {place.key!r} at tracker {where}",
                f"keys there: {', '.join(sorted(keys)) or 'none'}",
                f"tvm-codl serve{host} --tracker {where} --key {place.key}",
            )
        time.sleep(FIRST_PAUSE_S)


def _close_session(remote: rpc.RPCSession) -> None:
    """Ends the session now: Python would keep it, and the phone busy, as long as any reference lives."""
    with contextlib.suppress(Exception):  # a broken session is as good as closed
        remote._sess.get_function("CloseRPCConnection")()


def _read_profile(remote: rpc.RPCSession, where: str) -> DeviceProfile:
    try:
        ask = remote.get_function("codl.profile")
    except AttributeError as error:
        what = f"the server at {where} is not a tvm_codl phone"
        raise DeviceError(what, "it has no function codl.profile", "tvm-codl serve") from error
    _check_build(remote, where)
    return DeviceProfile.from_json(str(ask()))


def _read_session(remote: rpc.RPCSession) -> str:
    """The session's name at its phone; empty where the phone gives it none."""
    try:
        return str(remote.get_function("codl.session")())
    except AttributeError:
        return ""


def _read_ending(remote: rpc.RPCSession, session: str) -> Ending | None:
    """How that earlier session ended; None where it ended well, and where the phone does not know it."""
    try:
        words = str(remote.get_function("codl.ending")(session)) if session else ""
    except AttributeError:  # a phone of another kind
        return None
    return msgspec.json.decode(words, type=Ending) if words else None


def server_build(remote: rpc.RPCSession) -> ServerBuild | None:
    """The build that a native server reports; None for the reference phone, which runs the sources themselves."""
    try:
        ask = remote.get_function("codl.build")
    except AttributeError:
        return None
    return msgspec.json.decode(str(ask()), type=ServerBuild)


def _check_build(remote: rpc.RPCSession, where: str) -> None:
    """Raises :class:`DeviceError` if the server's co-executor or TVM differs: it would fail late and obscurely."""
    build = server_build(remote)
    if build is None or build.coexec == coexec_id():
        return
    command = f"python -m tvm_codl.runtime.server_build {build.platform}   and start that one on the phone: tvm-codl device push"
    if build.kind == "app":
        command = "python -m rpc_apps.android_rpc.build_apk   and: tvm-codl device install"
    raise DeviceError(
        f"the {build.kind} at {where} was built from another version",
        f"its co-executor is {build.coexec} (TVM {build.tvm}, {build.platform}), the one installed here {coexec_id()}",
        command,
    )
