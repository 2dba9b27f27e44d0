"""Context: what work on a phone needs, made once and passed on whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tvm_codl.device.profile import DeviceProfile
from tvm_codl.kernels.toolchain import Toolchain
from tvm_codl.measure.interleave import UsualWork
from tvm_codl.measure.settings import Settings
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import Record
from tvm_codl.records.store import RecordStore

Log = Callable[[str], None]


@dataclass(frozen=True)
class Context:
    """A phone (or a :class:`~tvm_codl.measure.phone_pool.PhonePool`), the record store, the compilers for the phone, and
    where progress is reported.  ``settings`` say how pieces are timed; ``usual_work`` is what races found (:class:`Race`)."""

    phone: Any
    store: RecordStore
    tools: Toolchain
    log: Log = lambda _: None
    settings: Settings = field(default_factory=Settings)
    usual_work: UsualWork = field(default_factory=dict)

    @property
    def profile(self) -> DeviceProfile:
        return self.phone.profile

    @property
    def device(self) -> str:
        """The phone's name in the records."""
        return self.phone.profile.name

    def records(self) -> list[Record]:
        """What was measured on this phone with today's kernels, of whatever network."""
        return list(self.store.query(device=self.device, build=self.tools.kernel_id, mode="alone"))

    def plan_runs(self) -> list[PlanRecord]:
        """The plans that ran undisturbed on this phone with today's kernels."""
        plans = self.store.plans(device=self.device, build=self.tools.kernel_id)
        return [run for run in plans if not run.disturbed]
