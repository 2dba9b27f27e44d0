"""What is known of a network's costs on a phone: from what was kept of it, or else from the phone.

Explaining a plan, changing it and comparing plans need no phone that was measured before: its records and profile are in
the record store, and what sharing costs on it is kept beside that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tvm_codl.cost.kept_sharing import kept_sharing, usual_sharing
from tvm_codl.cost.model import CostModel
from tvm_codl.device.power import Power
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import UserError
from tvm_codl.kernels.toolchain import toolchain
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.learning import Log, learn, learner, priced
from tvm_codl.paths import default_records
from tvm_codl.plan.energy import Energy
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.search import search
from tvm_codl.records.record import Record
from tvm_codl.records.store import RecordStore
from tvm_codl.relay.prepared import Prepared

Reach = Callable[[], AbstractContextManager[Any]]
_MEASURE = "tvm-codl plan MODEL measures the phone and keeps what it finds"


class NotKept(UserError):
    """Too little was kept of a phone to do without it."""


@dataclass(frozen=True)
class Known:
    """A network's costs on one phone; ``model`` is what ``problem`` asks for them."""

    problem: Problem
    model: CostModel
    profile: DeviceProfile


def recall(
    prepared: Prepared,
    records: Path | None = None,
    tuning_records: Path | None = None,
    device: str = "",
    log: Log = lambda _: None,
) -> Known:
    """What was kept of ``device``, by default the phone that was measured last.

    Raises :class:`NotKept` where the store has nothing of it, nothing of the kernels as they would be built today, or
    no sharing costs.
    """
    path = records or default_records()
    if not path.is_file():
        raise NotKept(f"{path} does not exist", next=_MEASURE)
    with RecordStore(path) as store:
        newest = {name: when for when, name in sorted((total[-1], total[0]) for total in store.totals())}
        if not newest or (device and device not in newest):
            whom = f"of {device!r}" if device else ""
            raise NotKept(f"{path} holds no measurement {whom}".rstrip(), f"devices: {', '.join(newest)}", _MEASURE)
        name = device or max(newest, key=lambda one: newest[one])
        known = list(store.query(device=name, mode="alone"))
        profile = _profile(store, known, name)
        tools = toolchain(profile, tuning_records)
        runs = list(store.plans(device=name, build=tools.kernel_id))
    own = [record for record in known if record.build == tools.kernel_id]
    kept = kept_sharing(path, name, tools.kernel_id)
    sharing = usual_sharing(path, name, tools.kernel_id)
    if not own or kept is None or sharing is None:
        what = "measurement" if not own else "sharing costs"
        raise NotKept(
            f"{path} holds no {what} of {name} with today's kernels",
            f"build {tools.kernel_id}; {len(known)} records of builds {', '.join(sorted({r.build for r in known}))}",
            _MEASURE,
        )
    when = datetime.fromtimestamp(kept.when).astimezone().strftime("%Y-%m-%d %H:%M")
    log(f"priced by {len(own)} records of {name}, and what sharing cost there on {when}: no phone was asked")
    model = learner(profile, tools)(own)
    return Known(priced(prepared, model, sharing, name, runs), model, profile)


def known(
    prepared: Prepared,
    reach: Reach,
    *,
    device: str = "",
    named: bool = False,
    budget_s: float = 120.0,
    records: Path | None = None,
    tuning_records: Path | None = None,
    log: Log = lambda _: None,
) -> Known:
    """:func:`recall`, or where too little was kept, what measuring the phone that ``reach`` opens teaches.

    Without ``device``, that phone is asked which it is where somebody ``named`` it or several were measured.  Raises :class:`UserError` where
    it is another one than ``device``.
    """
    kept = [] if device else _devices(records or default_records())
    if len(kept) > 1 or (kept and named):
        log(f"{len(kept)} device{'s were' if len(kept) > 1 else ' was'} measured: asking the phone which it is")
        with reach() as phone:
            device = phone.profile.name
    try:
        return recall(prepared, records, tuning_records, device, log)
    except NotKept as missing:
        log(f"{missing.what}: asking the phone")
    with reach() as phone:
        if device and phone.profile.name != device:
            raise UserError(
                f"the plan is for {device}, of which too little was kept",
                f"the phone that answers is {phone.profile.name}",
                "connect to that phone, or make a plan for this one: tvm-codl plan MODEL",
            )
        return _learned(prepared, phone, budget_s, records, tuning_records, log)


def energy_plan(
    prepared: Prepared,
    phone: Any,
    power: Power | None = None,
    *,
    budget_s: float = 120.0,
    records: Path | None = None,
    tuning_records: Path | None = None,
    log: Log = lambda _: None,
) -> Plan:
    """Measures as :func:`~tvm_codl.measure.workflow.make_plan` does, then plans for the least energy by a power table.

    ``power`` is the phone's profile's by default.  The plan is not run: no phone here measures its energy.  Raises
    :class:`UserError` without a table, before anything is measured.
    """
    energy = Energy(needed(power, phone.profile))
    problem = _learned(prepared, phone, budget_s, records, tuning_records, log).problem
    network = (problem.graph, problem.options, problem.sharing, problem.axes, problem.name, problem.device)
    return problem.correct(search(*network, energy=energy).plan)


def needed(power: Power | None, profile: DeviceProfile) -> Power:
    """The table that was given, or else the profile's; :class:`UserError` where there is neither."""
    table = power or profile.power
    if table is None:
        raise UserError(
            "energy cannot be planned without the phone's power",
            f"the profile of {profile.name} has no power table, and no phone tells it",
            "write idle_w, cpu_w, gpu_w and both_w, the watts of the whole phone in each state, to a file, one "
            "`name: watts` a line, and give it with --power FILE",
        )
    return table


def _learned(
    prepared: Prepared, phone: Any, budget_s: float, records: Path | None, tuning_records: Path | None, log: Log
) -> Known:
    found, problem = learn(prepared, phone, Budget(seconds=budget_s), log, records, tuning_records)
    return Known(problem, found.model, phone.profile)


def _devices(path: Path) -> list[str]:
    """Those with measurements in a store, which need not exist."""
    if not path.is_file():
        return []
    with RecordStore(path) as store:
        return sorted({total[0] for total in store.totals()})


def kept_profile(device: str, records: Path | None = None) -> DeviceProfile | None:
    """The newest profile of ``device`` that a store of measurements holds; None where there is none."""
    path = records or default_records()
    if not path.is_file():
        return None
    with RecordStore(path) as store:
        try:
            return _profile(store, list(store.query(device=device)), device)
        except NotKept:
            return None


def _profile(store: RecordStore, records: list[Record], name: str) -> DeviceProfile:
    """The newest profile that the records name."""
    profiles = store.profiles()
    for record in reversed(records):
        if record.profile in profiles:
            return DeviceProfile.from_json(profiles[record.profile])
    raise NotKept(f"{store.path} holds no profile of {name}", f"{len(records)} records", _MEASURE)
