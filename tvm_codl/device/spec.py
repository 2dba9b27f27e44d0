"""How a phone is addressed."""

from __future__ import annotations

import msgspec

from tvm_codl.errors import UsageError


class Local(msgspec.Struct, frozen=True):
    """The reference phone on this machine, started on demand."""


class _Address(msgspec.Struct, frozen=True):
    host: str
    port: int
    key: str


class Tracker(_Address, frozen=True):
    """Any free phone that serves ``key`` at a tracker."""


class Proxy(_Address, frozen=True):
    """The phone that serves ``key`` behind a proxy."""


class Direct(_Address, frozen=True):
    """A phone that listens at an address."""


Spec = Local | Tracker | Proxy | Direct


def parse_spec(tracker: str, proxy: str, key: str) -> Spec:
    """The phone that the command line's options name.  Raises :class:`UsageError` for an address that is none."""
    from tvm_codl.device.reference.serve import parse_address

    if tracker and proxy:
        raise UsageError("--rpc-tracker and --rpc-proxy exclude each other")
    if tracker or proxy:
        if not key:
            raise UsageError("which phone?", "--rpc-key is missing", "add --rpc-key KEY")
        return (Tracker if tracker else Proxy)(*parse_address(tracker or proxy), key)
    return Local()
