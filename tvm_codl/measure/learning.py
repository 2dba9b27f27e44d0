"""Learning what a network costs on a phone: measuring, guided by the plan, and the cost model of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.kept_sharing import keep_sharing, usual_sharing
from tvm_codl.cost.model import CostModel, samples_of
from tvm_codl.cost.sharing import SharingCost
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.graph.footprint import touched_bytes
from tvm_codl.kernels.reuse import load_tunings
from tvm_codl.kernels.toolchain import Toolchain, toolchain
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.guided import Guided, grid_probes, guide
from tvm_codl.measure.session import Session
from tvm_codl.measure.settings import Settings
from tvm_codl.measure.sharing import measure_sharing
from tvm_codl.paths import default_records
from tvm_codl.plan.measured import calibrated, correction
from tvm_codl.plan.problem import Problem
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import Record
from tvm_codl.records.store import RecordStore
from tvm_codl.relay.prepared import Prepared

Log = Callable[[str], None]

#: Probes of a grid between two lines of progress.
GRID_STEP = 96


def measure_network(
    prepared: Prepared,
    phone: Any,
    *,
    budget: Budget | str = "5min",
    log: Log = lambda _: None,
    records: Path | None = None,
    tuning_records: Path | None = None,
    retry_failed: bool = False,
) -> Guided:
    """Measures a network's operators and pieces on a phone, those first that could change the plan.

    ``budget`` is a :class:`Budget` or its text: ``"200"`` measurements, ``"90s"``, ``"5min"``.  Every record goes to the
    store ``records`` at once; what it holds already costs nothing, so a run that was interrupted goes on where it was::

        with codl.connect() as phone:
            found = codl.measure_network(codl.prepare(model), phone, budget="200", log=print)
        found.plan, found.rounds, found.model

    With ``retry_failed`` what failed of it on this phone before is tried again, within the budget.

    The plan is the predicted best and not yet run; :func:`make_plan` also measures it against each processor alone.
    Raises :class:`UsageError` for a budget that is none or too small, :class:`DeviceError` where the phone goes away.
    """
    allowed = Budget.parse(budget) if isinstance(budget, str) else budget
    return learn(prepared, phone, allowed, log, records, tuning_records, retry_failed)[0]


def learn(
    prepared: Prepared,
    phone: Any,
    budget: Budget,
    log: Log = lambda _: None,
    records: Path | None = None,
    tuning_records: Path | None = None,
    retry_failed: bool = False,
) -> tuple[Guided, Problem]:
    """:func:`measure_network`, and what was learned of the network's costs: the problem that the plan solves."""
    tools = toolchain(phone.profile, tuning_records)
    with RecordStore(records or default_records()) as store:
        session = measuring(prepared, phone, tools, store, log)
        sharing = measure_sharing(phone, tools.cpu, tools.gpu)
        keep_sharing(store.path, phone.profile.name, tools.kernel_id, sharing)
        sharing = usual_sharing(store.path, phone.profile.name, tools.kernel_id) or sharing
        log(
            f"a wait costs {sharing.wait_cpu_ms * 1e3:.0f} us, a change of layout {sharing.relayout_ms_per_mb:.2f} ms/MB"
        )
        found = guide(
            prepared.graph,
            prepared.axes,
            session,
            sharing,
            budget,
            known=store.query(device=phone.profile.name, build=tools.kernel_id, mode="alone"),
            name=prepared.name,
            device=phone.profile.name,
            fit=learner(phone.profile, tools),
            log=log,
            retry_failed=retry_failed,
        )
        runs = list(store.plans(device=phone.profile.name, build=tools.kernel_id))
    problem = priced(prepared, found.model, sharing, phone.profile.name, runs)
    if problem.correction != 1:
        log(
            f"plans that share took {problem.correction:.3f} times as long as predicted on this phone: "
            "so are they predicted now"
        )
    return msgspec.structs.replace(found, plan=problem.corrected(found.plan)), problem


def priced(
    prepared: Prepared, model: CostModel, sharing: SharingCost, device: str, runs: Sequence[PlanRecord]
) -> Problem:
    """A network with what was learned of its costs on a device, and by how much its plans and others' took longer there:
    ``runs`` are plans that were run, with the kernels of today."""
    graph = prepared.graph
    factors = correction(runs, graph), calibrated(runs, graph)
    return Problem(graph, prepared.axes, model, sharing, prepared.name, device, *factors)


def learner(profile: DeviceProfile, tools: Toolchain) -> Callable[[Iterable[Record]], CostModel]:
    """What makes a cost model of a phone's records, knowing its profile and the tuned kernels that its builds use."""
    facts = DeviceFacts.of(msgspec.to_builtins(profile))
    tunings = load_tunings(tools.records)
    provenance = {"device": profile.name, "build": tools.kernel_id}
    return lambda records: CostModel.fit(samples_of(records, facts), provenance, facts, tunings)


def measure_grid(
    prepared: Prepared,
    phone: Any,
    *,
    log: Log = lambda _: None,
    records: Path | None = None,
    tuning_records: Path | None = None,
    retry_failed: bool = False,
) -> list[Record]:
    """Measures every operator whole and split along each axis in tenths: thousands of records where a plan needs a
    tenth of them.  Returns them; what is on record already is not measured again, but failures with ``retry_failed``."""
    tools = toolchain(phone.profile, tuning_records)
    probes = grid_probes(prepared.graph, prepared.axes)
    found: list[Record] = []
    with RecordStore(records or default_records()) as store:
        session = measuring(prepared, phone, tools, store, log)
        for start in range(0, len(probes), GRID_STEP):
            found += session.measure(probes[start : start + GRID_STEP], retry_failed=retry_failed)
            log(f"{len(found)} of {len(probes)} measured")
    return found


def measuring(prepared: Prepared, phone: Any, tools: Toolchain, store: RecordStore, log: Log) -> Session:
    """A measuring session for a network on a phone."""
    return Session(
        prepared.graph,
        prepared.weights,
        tools.cpu,
        tools.gpu,
        phone,
        phone.profile.name,
        tools.kernel_id,
        store,
        log,
        tools.scheduled,
        Settings(network_bytes=touched_bytes(prepared.graph)),
        library_id=tools.build_id,
    )
