"""How a phone is addressed."""

from __future__ import annotations

import msgspec


class Local(msgspec.Struct, frozen=True):
    """The reference phone on this machine, started on demand."""


class Tracker(msgspec.Struct, frozen=True):
    """Any free phone that serves ``key`` at a tracker."""

    host: str
    port: int
    key: str


class Proxy(msgspec.Struct, frozen=True):
    """The phone that serves ``key`` behind a proxy."""

    host: str
    port: int
    key: str


class Direct(msgspec.Struct, frozen=True):
    """A phone that listens at an address."""

    host: str
    port: int
    key: str


Spec = Local | Tracker | Proxy | Direct
