"""The phones that wait behind one tracker."""

from __future__ import annotations

from tvm_codl.device.ask_tracker import tracker_summary
from tvm_codl.device.connect import CONNECT_S, Phone
from tvm_codl.device.soc import Soc
from tvm_codl.device.spec import Tracker


class Shelf:
    """The phones that serve one key at a tracker."""

    def __init__(self, place: Tracker, timeout_s: float = CONNECT_S, soc: Soc | None = None) -> None:
        self.place, self.timeout_s, self.soc = place, timeout_s, soc

    def take(self) -> Phone | None:
        """A session on a phone that is free now; None where none is.

        Raises :class:`DeviceError` where there is no tracker, or where the phone does not answer in time.
        """
        _, free = tracker_summary(self.place.host, self.place.port).get(self.place.key, (0, 0))
        return Phone(self.place, self.timeout_s, soc=self.soc) if free else None
