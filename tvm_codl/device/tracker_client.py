"""Asks a tracker for its summary, or for a free phone."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

from tvm.rpc import base

from tvm_codl.device.handshake import PATIENCE_S, Refused, dial, read_number
from tvm_codl.errors import DeviceError


def tracker_summary(host: str, port: int) -> dict[str, tuple[int, int]]:
    """For each key that phones serve: how many, and how many of them are free.

    Raises :class:`DeviceError` where there is no tracker, or one that does not answer within five seconds.
    """
    summary = _ask(host, port, [base.TrackerCode.SUMMARY], PATIENCE_S)
    phones = Counter(str(info["key"]).removeprefix("server:") for info in summary["server_info"])
    return {key: (n, int(summary["queue_info"].get(key, {}).get("free", 0))) for key, n in phones.items()}


def request_phone(host: str, port: int, key: str, timeout_s: float) -> tuple[str, int, str]:
    """The next free phone that serves ``key``: its host, its port and the key that it expects.

    Raises :class:`DeviceError` where none becomes free within ``timeout_s`` seconds; the tracker then drops the request
    and reserves no phone for it.
    """
    phone_host, phone_port, match_key = _ask(host, port, [base.TrackerCode.REQUEST, key, "", 1], timeout_s)
    return str(phone_host), int(phone_port), str(match_key)


def _ask(host: str, port: int, question: list[object], timeout_s: float) -> Any:
    start = f"start one: python -m tvm.exec.rpc_tracker --host {host} --port {port}"
    try:
        with dial(host, port, base.RPC_TRACKER_MAGIC) as conn:
            if read_number(conn) != base.RPC_TRACKER_MAGIC:
                raise DeviceError(f"{host}:{port} is not a TVM RPC tracker", "it answers with another protocol", start)
            base.sendjson(conn, question)
            conn.settimeout(timeout_s)
            try:
                code, answer = base.recvjson(conn)
            except TimeoutError as error:
                raise DeviceError(
                    f"the tracker at {host}:{port} did not answer within {timeout_s:g} s",
                    "all phones with this key are busy" if question[0] == base.TrackerCode.REQUEST else "",
                    "wait for the other client, or use another key",
                ) from error
    except (OSError, ValueError, TypeError, struct.error, Refused) as error:
        raise DeviceError(f"no tracker at {host}:{port}", f"{type(error).__name__}: {error}", start) from error
    if code != base.TrackerCode.SUCCESS:
        raise DeviceError(f"the tracker at {host}:{port} refused", f"code {code}", start)
    return answer
