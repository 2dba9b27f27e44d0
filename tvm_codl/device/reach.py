"""``connect``: a session on a phone, wherever it is, with a deadline on everything that could wait for ever."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import rpc

from tvm_codl.device.ask_tracker import PATIENCE_S, request_phone, tracker_summary
from tvm_codl.device.local import local_phone
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.device.spec import Direct, Local, Proxy, Spec, Tracker
from tvm_codl.errors import CodlError, DeviceError, UsageError

CONNECT_S = 20.0
PING_S = 3.0


@dataclass(frozen=True)
class Phone:
    """An open session: ``remote`` runs packed functions and takes files; ``cpu`` and ``gpu`` are its two devices."""

    remote: rpc.RPCSession
    cpu: tvm.runtime.Device
    gpu: tvm.runtime.Device
    profile: DeviceProfile
    where: str


@contextlib.contextmanager
def connect(spec: Spec | None = None, *, timeout_s: float = CONNECT_S, session_s: float = 0.0) -> Iterator[Phone]:
    """A session on the phone that ``spec`` names, by default one on this machine that lives as long as the session.

    The phone ends the session after ``session_s`` seconds (0: never).  Raises :class:`DeviceError` where there is no
    such phone, where it does not answer within ``timeout_s`` seconds, and where it goes away while the caller's block
    runs.
    """
    spec = spec or Local()
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(local_phone()) if isinstance(spec, Local) else spec
        where = f"{type(place).__name__.lower()} {place.host}:{place.port}, key {place.key}"
        remote = _within(timeout_s, where, lambda: _session(place, session_s, timeout_s))
        stack.callback(_close, remote)
        try:
            phone = _within(timeout_s, where, lambda: _phone(remote, where))
            yield phone
        except CodlError:
            raise
        except (tvm.error.TVMError, OSError) as error:
            if _is_gone(remote):
                raise _went_away(where, error) from error
            raise


def phone_from_options(tracker: str, proxy: str, key: str) -> Spec:
    """The phone that the command line's options name.  Raises :class:`UsageError` for an address that is none."""
    from tvm_codl.device.serve import address

    if tracker and proxy:
        raise UsageError("--rpc-tracker and --rpc-proxy exclude each other")
    if tracker or proxy:
        if not key:
            raise UsageError("which phone?", "--rpc-key is missing", "add --rpc-key KEY")
        return (Tracker if tracker else Proxy)(*address(tracker or proxy), key)
    return Local()


def _session(place: Tracker | Proxy | Direct, session_s: float, timeout_s: float) -> rpc.RPCSession:
    limit = math.ceil(session_s)
    if isinstance(place, Tracker):
        keys = tracker_summary(place.host, place.port)
        if place.key not in keys:
            known = ", ".join(sorted(keys)) or "none"
            raise DeviceError(
                f"no phone serves the key {place.key!r} at tracker {place.host}:{place.port}",
                f"keys there: {known}",
                f"tvm-codl serve --tracker {place.host}:{place.port} --key {place.key}",
            )
        host, port, match_key = request_phone(place.host, place.port, place.key, timeout_s)
        return rpc.connect(host, port, match_key, session_timeout=limit)
    try:
        socket.create_connection((place.host, place.port), timeout=PATIENCE_S).close()
    except OSError as error:
        kind = "proxy" if isinstance(place, Proxy) else "phone"
        start = "python -m tvm.exec.rpc_proxy" if isinstance(place, Proxy) else "tvm-codl serve"
        raise DeviceError(
            f"no {kind} at {place.host}:{place.port}", str(error), f"{start} --port {place.port}"
        ) from error
    return rpc.connect(place.host, place.port, place.key, session_timeout=limit)


def _close(remote: rpc.RPCSession) -> None:
    """Ends the session now: left to Python, it would last as long as any reference to it, and the phone with it."""
    with contextlib.suppress(Exception):  # a session that is broken is as good as closed
        _within(PING_S, "", lambda: remote._sess.get_function("CloseRPCConnection")())


def _phone(remote: rpc.RPCSession, where: str) -> Phone:
    try:
        ask = remote.get_function("codl.profile")
    except AttributeError as error:
        raise DeviceError(
            f"the server at {where} is not a tvm_codl phone", "it has no function codl.profile", "tvm-codl serve"
        ) from error
    profile = DeviceProfile.from_json(str(ask()))
    return Phone(remote, remote.cpu(0), remote.device("opencl", 0), profile, where)


def _within(seconds: float, where: str, work: Callable[[], Any]) -> Any:
    """The result of ``work``, in a thread of its own, so that a peer that says nothing does not hold the caller."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        if isinstance(errors[0], CodlError):
            raise errors[0]
        if isinstance(errors[0], tvm.error.TVMError | OSError | RuntimeError):
            raise DeviceError(
                f"the phone at {where} refused or dropped the connection",
                _last(errors[0]),
                "look at its log; then run the same command again",
            ) from errors[0]
        raise errors[0]
    if not results:
        raise DeviceError(
            f"the phone at {where} did not answer within {seconds:g} s",
            "it may be busy with another client",
            "wait for that client, or raise --rpc-timeout",
        )
    return results[0]


def _is_gone(remote: rpc.RPCSession) -> bool:
    """Whether the session no longer answers; TVM's RPC has no error type of its own for that."""
    try:
        _within(PING_S, "", lambda: remote.get_function("codl.profile"))
    except Exception:  # whatever a broken session raises
        return True
    return False


def _went_away(where: str, error: BaseException) -> DeviceError:
    return DeviceError(
        f"the phone at {where} went away", _last(error), "look at its log; then run the same command again"
    )


def _last(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"
