"""From a model to a running library, step by step: what the commands and the tutorials call."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tvm

from tvm_codl.build.elf import check_library
from tvm_codl.build.library import build
from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.model import CostModel, samples_of
from tvm_codl.device.opencl import cache_dir, default_records
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import DeviceError, UserError
from tvm_codl.frontend.model import LoadedModel
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import Axis, axes
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.builders import build_all
from tvm_codl.measure.guided import Guided, grid_probes, guide
from tvm_codl.measure.session import Session, open_remote
from tvm_codl.measure.sharing import measure_sharing
from tvm_codl.plan.explain import uniform_plan
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.verify import verify_plan
from tvm_codl.records.record import Record
from tvm_codl.records.store import RecordStore
from tvm_codl.relay.annotate import AnnotateCoExecution
from tvm_codl.relay.extract import extract
from tvm_codl.relay.partition import PartitionCoExecution
from tvm_codl.runtime.comodule import CoModule
from tvm_codl.targets import Toolchain, toolchain
from tvm_codl.tiling.tuned import used

Log = Callable[[str], None]

#: Probes of a grid between two lines of progress.
GRID_STEP = 96
#: A plan that loses to a single processor is looked at again, since whatever else runs on the machine takes away the one
#: thing that co-execution needs: both processors at once.
LOOKS = 3
CALM_S = 4.0


@dataclass(frozen=True)
class Prepared:
    """A network ready to be planned.  ``axes``: by operator id, the axes along which it can be split."""

    model: LoadedModel
    graph: OpGraph
    weights: Mapping[str, np.ndarray]
    module: tvm.IRModule
    axes: Mapping[int, Mapping[str, Axis]]

    @property
    def name(self) -> str:
        return self.model.name


def prepare(model: LoadedModel) -> Prepared:
    """Simplifies the network and finds its operators."""
    graph, weights, module = extract(model.module)
    return Prepared(model, graph, weights, module, {o.id: axes(o, graph) for o in graph.operators})


def make_plan(
    prepared: Prepared,
    phone: Any,
    *,
    budget_s: float = 120.0,
    log: Log = lambda _: None,
    records: Path | None = None,
    tuning_records: Path | None = None,
    check: bool = True,
) -> Plan:
    """Measures, learns and plans, and measures the plan against each processor alone.

    ``budget_s`` bounds the measuring of pieces (whole operators and a few pieces are always measured); see
    :func:`measure_network`.  With ``check`` the result is never slower than the better processor: where the measured plan
    loses, that processor is the plan.
    """
    found = measure_network(
        prepared, phone, budget=Budget(seconds=budget_s), log=log, records=records, tuning_records=tuning_records
    )
    return _checked(prepared, found.plan, phone, toolchain(phone.profile, tuning_records), log) if check else found.plan


def measure_network(
    prepared: Prepared,
    phone: Any,
    *,
    budget: Budget | str = "5min",
    log: Log = lambda _: None,
    records: Path | None = None,
    tuning_records: Path | None = None,
) -> Guided:
    """Measures a network's operators and pieces on a phone, those first that could change the plan.

    ``budget`` is a :class:`Budget` or its text: ``"200"`` measurements, ``"90s"``, ``"5min"``.  Every record goes to the
    store ``records`` at once; what it holds already costs nothing, so a run that was interrupted goes on where it was::

        with codl.connect() as phone:
            found = codl.measure_network(codl.prepare(model), phone, budget="200", log=print)
        found.plan, found.rounds, found.model

    The plan is the predicted best and not yet run; :func:`make_plan` also measures it against each processor alone.
    Raises :class:`UsageError` for a budget that is none or too small, :class:`DeviceError` where the phone goes away.
    """
    allowed = Budget.parse(budget) if isinstance(budget, str) else budget
    tools = toolchain(phone.profile, tuning_records)
    with RecordStore(records or default_records()) as store:
        session = measuring(prepared, phone, tools, store, log)
        sharing = measure_sharing(phone, tools.cpu, tools.gpu)
        log(
            f"a wait costs {sharing.wait_cpu_ms * 1e3:.0f} us, a change of layout {sharing.relayout_ms_per_mb:.2f} ms/MB"
        )
        return guide(
            prepared.graph,
            prepared.axes,
            session,
            sharing,
            allowed,
            known=store.query(device=phone.profile.name, build=tools.kernel_id, mode="alone"),
            name=prepared.name,
            device=phone.profile.name,
            fit=learner(phone.profile, tools),
            log=log,
        )


def learner(profile: DeviceProfile, tools: Toolchain) -> Callable[[Iterable[Record]], CostModel]:
    """What makes a cost model of a phone's records, knowing its profile and the tuned kernels that its builds use."""
    facts = DeviceFacts.of(msgspec.to_builtins(profile))
    tunings = used(tools.records)
    provenance = {"device": profile.name, "build": tools.kernel_id}
    return lambda records: CostModel.fit(samples_of(records, facts), provenance, facts, tunings)


def measure_grid(
    prepared: Prepared,
    phone: Any,
    *,
    log: Log = lambda _: None,
    records: Path | None = None,
    tuning_records: Path | None = None,
) -> list[Record]:
    """Measures every operator whole and split along each axis in tenths: thousands of records where a plan needs a
    tenth of them.  Returns them; what is on record already is not measured again."""
    tools = toolchain(phone.profile, tuning_records)
    probes = grid_probes(prepared.graph, prepared.axes)
    found: list[Record] = []
    with RecordStore(records or default_records()) as store:
        session = measuring(prepared, phone, tools, store, log)
        for start in range(0, len(probes), GRID_STEP):
            found += session.measure(probes[start : start + GRID_STEP])
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
    )


def _checked(prepared: Prepared, plan: Plan, phone: Any, tools: Toolchain, log: Log) -> Plan:
    """``plan``, or the better processor alone where that is as fast on the phone."""
    if len({o.placement.on for o in plan.operators}) == 1 and plan.operators[0].placement.on != "split":
        return plan
    uniform = {on: uniform_plan(prepared.graph, on, plan.model, plan.device) for on in ("cpu", "gpu")}
    plans = {"plan": plan, **uniform}
    modules = {n: open_library(path, phone) for n, path in libraries_for(prepared, plans, tools, log).items()}
    for _ in range(LOOKS):
        times = interleaved(modules, prepared.model.sample_inputs(), 10)
        middle = {name: float(np.median(t)) for name, t in times.items()}
        best = min(("cpu", "gpu"), key=lambda on: middle[on])
        log(f"measured: plan {middle['plan']:.2f} ms, cpu {middle['cpu']:.2f} ms, gpu {middle['gpu']:.2f} ms")
        if middle["plan"] < middle[best]:
            return plan
    words = f"the whole network on the {best}: measured {middle[best]:.2f} ms against {middle['plan']:.2f} ms split"
    chosen = uniform_plan(prepared.graph, best, plan.model, plan.device)  # type: ignore[arg-type]
    lines = tuple(msgspec.structs.replace(o, reason=words) for o in chosen.operators)
    return msgspec.structs.replace(chosen, operators=lines, predicted_ms=middle[best])


def interleaved(
    modules: Mapping[str, CoModule], inputs: Mapping[str, np.ndarray], repeat: int
) -> dict[str, list[float]]:
    """Milliseconds of each module, ``repeat`` rounds in turn, so that drift meets them all alike."""
    samples: dict[str, list[float]] = {name: [] for name in modules}
    for module in modules.values():
        module.run(inputs)
    calm_down()
    for _ in range(repeat):
        for name, module in modules.items():
            samples[name] += settled(module)
    return samples


def calm_down() -> None:
    """Waits until what building and sending libraries left behind is done: pages to write, memory to give back.

    The kernel does that for seconds after, on the cores that are about to be measured where the phone is this machine,
    and it meets co-execution alone: a single processor leaves it the other core.
    """
    os.sync()
    time.sleep(CALM_S)


def settled(module: CoModule, runs: int = 2) -> list[float]:
    """``runs`` samples in ms after one that is not counted.

    The first run after another module's finds caches and driver in that one's state (PoCL keeps 128 kernels open and
    opens the others anew); an application runs one network again and again.
    """
    return module.benchmark(1, 1 + runs)[1:]


def partition(prepared: Prepared, plan: Plan) -> tvm.IRModule:
    """The partitioned Relay module.  Raises :class:`UserError` for a plan that is illegal for this network."""
    verify_plan(plan, prepared.graph, prepared.axes)
    passes = tvm.transform.Sequential([AnnotateCoExecution(plan), PartitionCoExecution()])
    with tvm.transform.PassContext(opt_level=3):
        return passes(prepared.module)


def build_library(
    prepared: Prepared,
    plan: Plan,
    profile: DeviceProfile,
    out: Path,
    log: Log = lambda _: None,
    tuning_records: Path | None = None,
) -> Path:
    """Builds one ``.so`` for a phone of that profile at ``out``."""
    path = _build(prepared, plan, toolchain(profile, tuning_records), out)
    log(f"built {path.name} ({path.stat().st_size / 1e6:.0f} MB)")
    return path


def _build(prepared: Prepared, plan: Plan, tools: Toolchain, out: Path) -> Path:
    partitioned = partition(prepared, plan)
    with tools.scheduled():
        library = build(partitioned, tools.cpu, tools.gpu, msgspec.to_builtins(plan), prepared.model.outputs)
    return library.export(out)


def library_for(prepared: Prepared, plan: Plan, tools: Toolchain, log: Log) -> Path:
    """The library of a plan from the cache, built if it is not there.  Equal placements have one library."""
    return libraries_for(prepared, {"": plan}, tools, log)[""]


def libraries_for(prepared: Prepared, plans: Mapping[str, Plan], tools: Toolchain, log: Log) -> dict[str, Path]:
    """:func:`library_for` for several plans; what is missing is built on all cores."""
    common = hashlib.sha256(msgspec.json.encode(prepared.graph) + tools.build_id.encode())
    for key, value in prepared.weights.items():
        common.update(key.encode() + np.ascontiguousarray(value).tobytes())
    paths = {}
    for name, plan in plans.items():
        digest = common.copy()
        digest.update(msgspec.json.encode(tuple(o.placement for o in plan.operators)))
        paths[name] = cache_dir() / "libraries" / f"{digest.hexdigest()[:24]}.so"
    missing = {path: plans[name] for name, path in paths.items() if not path.exists()}
    if missing:
        log(f"building {len(missing)} libraries")
        places, wanted = list(missing), list(missing.values())

        def one(index: int) -> Path:
            return _build(prepared, wanted[index], tools, places[index])

        for index, outcome in build_all(len(wanted), one):
            if outcome.path is None:
                raise UserError(f"building the library of {prepared.name} failed", outcome.error, "tvm-codl doctor")
            log(f"built {places[index].name} ({places[index].stat().st_size / 1e6:.0f} MB)")
    return paths


def open_library(path: Path, phone: Any, sharing: str = "auto") -> CoModule:
    """Sends a library to the phone and makes it ready to run there.

    Raises :class:`UserError` for a file that is no library of ours, :class:`DeviceError` where the phone refuses it.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist", next="tvm-codl build MODEL -o model.so")
    check_library(path, phone.profile.arch)
    try:
        return open_remote(phone, path, sharing)
    except tvm.error.TVMError as error:
        lines = [x.strip() for x in str(error).splitlines() if x.strip()]
        raise DeviceError(
            f"the phone cannot load {path.name}", lines[-1] if lines else "", "tvm-codl doctor"
        ) from error
