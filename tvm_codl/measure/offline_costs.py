"""A network's costs on a phone from stored records, without asking the phone.

Explaining a plan, changing it and comparing plans need no phone that was measured before: the record store holds its
measurements and profile, and a file beside it what transfers cost there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_codl.cost.model import CostModel
from tvm_codl.cost.transfer_store import load_transfer_cost, load_usual_transfer_cost
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import UserError
from tvm_codl.kernels.kernel_id import kernel_id
from tvm_codl.measure.budget import USUAL_S, Budget
from tvm_codl.measure.fitting import fit_once, pose_problem
from tvm_codl.plan.measured import graph_digest
from tvm_codl.plan.problem import Problem
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import Record
from tvm_codl.records.rounds import Round, load_rounds
from tvm_codl.records.store import RecordStore
from tvm_codl.relay.prepared import Prepared

if TYPE_CHECKING:
    from tvm_codl.measure.context import Context, Log

_MEASURE = "tvm-codl plan MODEL measures the phone and keeps the records"


class NoOfflineCosts(UserError):
    """The store holds too little of a phone to plan without it."""


@dataclass(frozen=True)
class NetworkCosts:
    """A network's costs on one phone; ``problem`` asks ``model`` for them.

    ``runs`` are the plans of any network that ran there with today's kernels, ``rounds`` those of this network's last search.
    """

    problem: Problem
    model: CostModel
    profile: DeviceProfile
    runs: Sequence[PlanRecord] = ()
    rounds: Sequence[Round] = ()


def load_costs(
    prepared: Prepared, records: Path, tuning_records: Path | None, device: str = "", log: Log = lambda _: None
) -> NetworkCosts:
    """The costs on ``device``, by default the phone that was measured last, from the record store at ``records``.

    Raises :class:`NoOfflineCosts` where the store has nothing of it, nothing of today's kernels, or no transfer costs.
    """
    if not records.is_file():
        raise NoOfflineCosts(f"{records} does not exist", next=_MEASURE)
    with RecordStore(records) as store:
        newest = {name: when for when, name in sorted((total[-1], total[0]) for total in store.totals())}
        if not newest or (device and device not in newest):
            whom = f"of {device!r}" if device else ""
            evidence = f"devices: {', '.join(newest)}"
            raise NoOfflineCosts(f"{records} holds no measurement {whom}".rstrip(), evidence, _MEASURE)
        name = device or max(newest, key=lambda each: newest[each])
        measured = list(store.query(device=name, mode="alone"))
        profile = _newest_profile(store, measured)
        if profile is None:
            raise NoOfflineCosts(f"{records} holds no profile of {name}", f"{len(measured)} records", _MEASURE)
        build = kernel_id(profile, tuning_records)
        runs = [run for run in store.plans(device=name, build=build) if not run.disturbed]
    own = [record for record in measured if record.build == build]
    kept = load_transfer_cost(records, name, build)
    sharing = load_usual_transfer_cost(records, name, build)
    if not own or kept is None or sharing is None:
        builds = ", ".join(sorted({record.build for record in measured}))
        raise NoOfflineCosts(
            f"{records} holds no {'transfer costs' if own else 'measurement'} of {name} with today's kernels",
            f"build {build}; {len(measured)} records of builds {builds}",
            _MEASURE,
        )
    when = datetime.fromtimestamp(kept.when).astimezone().strftime("%Y-%m-%d %H:%M")
    log(f"costs from {len(own)} records of {name} and its transfer costs of {when}, without the phone")
    model = fit_once(own, profile, build, [tuning_records] if tuning_records else [])
    rounds = load_rounds(records, name, build, graph_digest(prepared.graph))
    return NetworkCosts(pose_problem(prepared, model, sharing, name, runs), model, profile, runs, rounds)


def find_costs(
    prepared: Prepared,
    connect: Callable[[], AbstractContextManager[Context]],
    records: Path,
    tuning_records: Path | None,
    *,
    device: str = "",
    named: bool = False,
    budget_s: float = USUAL_S,
    log: Log = lambda _: None,
) -> NetworkCosts:
    """:func:`load_costs`; where the store holds too little, measures the phone that ``connect`` opens.

    Without ``device``, asks the phone for its name if the user ``named`` a phone or if several were measured.  Raises
    :class:`UserError` where the phone that answers is not ``device``.
    """
    devices = [] if device else _devices(records)
    if len(devices) > 1 or (devices and named):
        log(f"{len(devices)} device{'s were' if len(devices) > 1 else ' was'} measured: asking the phone for its name")
        with connect() as context:
            device = context.device
    try:
        return load_costs(prepared, records, tuning_records, device, log)
    except NoOfflineCosts as missing:
        log(f"{missing.what}: measuring the phone")
    from tvm_codl.measure.learning import learn  # with TVM

    with connect() as context:
        if device and context.device != device:
            raise UserError(
                f"the plan is for {device}, of which too little is on record",
                f"the phone that answers is {context.device}",
                "connect to that phone, or make a plan for this one: tvm-codl plan MODEL",
            )
        guided, problem = learn(prepared, context, Budget(seconds=budget_s))
        return NetworkCosts(problem, guided.model, context.profile, context.plan_runs(), guided.rounds)


def load_profile(device: str, records: Path) -> DeviceProfile | None:
    """The newest profile of ``device`` in a record store; None where there is none."""
    if not records.is_file():
        return None
    with RecordStore(records) as store:
        return _newest_profile(store, list(store.query(device=device)))


def _devices(records: Path) -> list[str]:
    """Those with measurements in a store, which need not exist."""
    if not records.is_file():
        return []
    with RecordStore(records) as store:
        return sorted({total[0] for total in store.totals()})


def _newest_profile(store: RecordStore, records: list[Record]) -> DeviceProfile | None:
    """The newest profile that the records name."""
    profiles = store.profiles()
    named = (profiles[record.profile] for record in reversed(records) if record.profile in profiles)
    newest = next(named, None)
    return None if newest is None else DeviceProfile.from_json(newest)
