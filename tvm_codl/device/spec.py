"""How a phone is addressed."""

from __future__ import annotations

import msgspec


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
