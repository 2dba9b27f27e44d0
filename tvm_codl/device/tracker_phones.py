"""The phones that serve one key at a tracker."""

from __future__ import annotations

from tvm_codl.device.connect import CONNECT_S, Phone
from tvm_codl.device.soc import Soc
from tvm_codl.device.spec import Tracker
from tvm_codl.device.tracker_client import tracker_summary


class TrackerPhones:
    """Opens sessions on the phones of one key."""

    def __init__(self, place: Tracker, timeout_s: float = CONNECT_S, soc: Soc | None = None) -> None:
        self.place, self.timeout_s, self.soc = place, timeout_s, soc

    def take(self) -> Phone | None:
        """A session on a free phone; None where none is free.

        Raises :class:`DeviceError` where there is no tracker, or where the phone does not answer in time.
        """
        _, free = tracker_summary(self.place.host, self.place.port).get(self.place.key, (0, 0))
        return Phone(self.place, self.timeout_s, soc=self.soc) if free else None
