"""From a model to a running library, step by step: what the commands and the tutorials call."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tvm

from tvm_codl.build.elf import check_library
from tvm_codl.build.library import build, build_adaptive
from tvm_codl.build.pool import build_all, last_line
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import CodlError, DeviceError, UserError
from tvm_codl.kernels.toolchain import Toolchain, toolchain
from tvm_codl.measure import busy_validation as busy_look
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.choices import check_settings
from tvm_codl.measure.learning import learn as learn
from tvm_codl.measure.learning import learner as learner
from tvm_codl.measure.learning import measure_grid as measure_grid
from tvm_codl.measure.learning import measure_network as measure_network
from tvm_codl.measure.learning import measuring as measuring
from tvm_codl.measure.session import open_remote
from tvm_codl.measure.validation import SECONDS, compare
from tvm_codl.paths import cache_dir, default_records
from tvm_codl.plan.adaptive import StatePlan, adaptive_plans
from tvm_codl.plan.candidates import PROCESSORS
from tvm_codl.plan.measured import calibrated, known_plans, record_of
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.problem import Problem
from tvm_codl.plan.shortlist import Contender, contenders, origins, uniform
from tvm_codl.records.settings import DEFAULT
from tvm_codl.records.store import RecordStore
from tvm_codl.relay.pipeline import partition as partition
from tvm_codl.relay.pipeline import prepare as prepare
from tvm_codl.relay.prepared import Prepared as Prepared
from tvm_codl.runtime.comodule import CoModule

Log = Callable[[str], None]


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
    """Measures, learns and plans, and runs the best plans on the phone against each other and each processor alone.

    ``budget_s`` bounds the measuring of pieces (whole operators and a few pieces are always measured); see
    :func:`measure_network`.  With ``check`` the result is the fastest that was run (:func:`second_look`), so it is never
    slower than the better processor; without, it is the predicted best, not yet run.
    """
    found, problem = learn(prepared, phone, Budget(seconds=budget_s), log, records, tuning_records)
    if not check:
        return found.plan
    tools = toolchain(phone.profile, tuning_records)
    return second_look(prepared, problem, shortlist(problem, found.plan, records), phone, tools, log, records)


def shortlist(problem: Problem, plan: Plan, records: Path | None = None) -> list[Contender]:
    """The plans that are worth a run on the phone (:mod:`tvm_codl.plan.shortlist`), those that were fast before among
    them."""
    with RecordStore(records or default_records()) as store:
        known = known_plans(store.plans(device=problem.device), problem)
    return contenders(problem, plan, known)


def make_adaptive(
    prepared: Prepared,
    phone: Any,
    *,
    plan: Plan | None = None,
    budget_s: float = 120.0,
    log: Log = lambda _: None,
    records: Path | None = None,
    tuning_records: Path | None = None,
) -> tuple[StatePlan, ...]:
    """``plan`` (by default :func:`make_plan`'s) and plans for a phone whose CPU is busy or whose GPU is throttled.

    Those for a busy CPU are run beside competing threads on the phone, and the fastest is kept (:func:`busy_look`).
    """
    found, problem = learn(prepared, phone, Budget(seconds=budget_s), log, records, tuning_records)
    if plan is None:
        tools = toolchain(phone.profile, tuning_records)
        plan = second_look(prepared, problem, shortlist(problem, found.plan, records), phone, tools, log, records)
    return look_when_busy(prepared, adaptive_plans(problem, plan), phone, log, tuning_records)


def look_when_busy(
    prepared: Prepared,
    plans: Sequence[StatePlan],
    phone: Any,
    log: Log = lambda _: None,
    tuning_records: Path | None = None,
) -> tuple[StatePlan, ...]:
    """The first of ``plans``, the one for a busy CPU that is fastest on ``phone`` while its CPU is busy, and those for
    other states.  One library of them all is built for that."""
    candidates = [i for i, one in enumerate(plans) if i == 0 or one.state == "cpu busy"]
    if len(candidates) == 1:
        return tuple(plans)
    with tempfile.TemporaryDirectory(prefix="tvm-codl-") as folder:
        path = Path(folder) / f"{prepared.name}-{secrets.token_hex(4)}.so"
        build_adaptive_library(prepared, [plans[i] for i in candidates], phone.profile, path, log, tuning_records)
        module = open_library(path, phone)
        module.run(prepared.model.sample_inputs())
        busy = busy_look.look(module, phone, range(len(candidates)))
    medians = {at: busy.median(number) for number, at in enumerate(candidates)}
    for at, ms in medians.items():
        log(f"{plans[at].name}: {ms:.2f} ms while the CPU is busy")
    return busy_look.fittest(plans, medians)


def second_look(
    prepared: Prepared,
    problem: Problem,
    found: Sequence[Contender],
    phone: Any,
    tools: Toolchain,
    log: Log = lambda _: None,
    records: Path | None = None,
    seconds: float = SECONDS,
) -> Plan:
    """Builds some plans, runs them in turn on the phone with each processor alone beside them, and returns the fastest with
    its ``measured_ms`` (:mod:`tvm_codl.measure.validation`).  The times of all go to the store ``records``.

    A processor that does not run every operator is not tried alone."""
    singles = uniform(problem)
    for on in PROCESSORS:
        if on not in singles:
            log(f"not tried on the {on} alone, which does not run every operator")
    log(f"a second look at {origins(found) or 'each processor alone'}")
    plans = {**singles, **{one.origin: one.plan for one in found}}
    paths = libraries_for(prepared, plans, tools, log)
    modules = {name: open_library(path, phone) for name, path in paths.items()}
    predicted = {name: each.predicted_ms for name, each in plans.items()}
    looked = compare(modules, prepared.model.sample_inputs(), predicted, singles, log, seconds)
    for name, each in plans.items():
        log(f"{name}: predicted {each.predicted_ms:.2f} ms, measured {looked.median(name):.2f} ms")
    with RecordStore(records or default_records()) as store:
        build, now = tools.kernel_id, time.time()
        store.add_plans(record_of(problem, plans[name], ms, build, now) for name, ms in looked.samples.items())
        runs = list(store.plans(device=problem.device, build=build))
    # What single processors took just now says more of this network than its operators' sum; what a plan that shares it
    # took is not asked.
    own = calibrated(runs, problem.graph)
    log(f"by its times alone: predicted now {own.cpu:.3f} (CPU) and {own.gpu:.3f} (GPU) times its operators' sum")
    priced = dataclasses.replace(problem, calibration=own).corrected(plans[looked.first])
    chosen = msgspec.structs.replace(priced, measured_ms=looked.median(looked.first))
    if looked.first not in singles:
        return chosen
    split = min((looked.median(one.origin) for one in found), default=None)
    against = f"{split:.2f} ms split" if split else "no split that is predicted to be about as fast"
    words = f"the whole network on the {looked.first}: measured {chosen.measured_ms:.2f} ms against {against}"
    lines = tuple(msgspec.structs.replace(o, reason=words) for o in chosen.operators)
    return msgspec.structs.replace(chosen, operators=lines)


def build_library(
    prepared: Prepared,
    plan: Plan,
    profile: DeviceProfile,
    out: Path,
    log: Log = lambda _: None,
    tuning_records: Path | None = None,
    adaptive: Sequence[StatePlan] = (),
) -> Path:
    """Builds one ``.so`` for a phone of that profile at ``out``.

    With ``adaptive`` (:func:`make_adaptive`, whose first plan is ``plan``) it carries all these plans and chooses among
    them as it runs.
    """
    if adaptive:
        return build_adaptive_library(prepared, adaptive, profile, out, log, tuning_records)
    check_settings(plan.settings, profile)
    path = _build(prepared, plan, toolchain(profile, tuning_records), out)
    log(f"built {path.name} ({path.stat().st_size / 1e6:.0f} MB)")
    return path


def _build(prepared: Prepared, plan: Plan, tools: Toolchain, out: Path) -> Path:
    """Raises :class:`UserError` where TVM does not compile the network for that phone."""
    try:
        return _compiled(prepared, plan, tools, out)
    except (CodlError, OSError):
        raise
    except Exception as error:  # a compiler raises whatever it likes
        raise UserError(
            f"TVM does not compile {prepared.name} for {tools.cpu.attrs.get('mtriple') or 'this machine'} by that plan",
            last_line(error),
            "tvm-codl measure MODEL tells which operators run on which processor; plan with these",
        ) from error


def _compiled(prepared: Prepared, plan: Plan, tools: Toolchain, out: Path) -> Path:
    partitioned = partition(prepared, plan)
    with tools.scheduled():
        gpu = tools.gpu_with(plan.settings.gpu_memory)
        library = build(partitioned, tools.cpu, gpu, msgspec.to_builtins(plan), prepared.model.outputs)
    return library.export(out)


def build_adaptive_library(
    prepared: Prepared,
    plans: Sequence[StatePlan],
    profile: DeviceProfile,
    out: Path,
    log: Log = lambda _: None,
    tuning_records: Path | None = None,
) -> Path:
    """Builds one ``.so`` of several plans (:func:`tvm_codl.plan.adaptive.adaptive_plans`), which chooses as it runs."""
    tools = toolchain(profile, tuning_records)
    for one in plans:
        check_settings(one.plan.settings, profile)
    parts = [(one.name, one.state, partition(prepared, one.plan), msgspec.to_builtins(one.plan)) for one in plans]
    with tools.scheduled():
        # They are of one plan's settings (plan/adaptive.py).
        gpu = tools.gpu_with(plans[0].plan.settings.gpu_memory)
        library = build_adaptive(parts, tools.cpu, gpu, prepared.model.outputs)
    path = library.export(out)
    log(f"built {path.name} ({path.stat().st_size / 1e6:.0f} MB): {', '.join(one.name for one in plans)}")
    return path


def library_for(prepared: Prepared, plan: Plan, tools: Toolchain, log: Log) -> Path:
    """The library of a plan from the cache, built if it is not there.  Equal placements have one library."""
    return libraries_for(prepared, {"": plan}, tools, log)[""]


def libraries_for(prepared: Prepared, plans: Mapping[str, Plan], tools: Toolchain, log: Log) -> dict[str, Path]:
    """:func:`library_for` for several plans; what is missing is built on all cores."""
    common = hashlib.sha256(msgspec.json.encode(prepared.graph) + tools.build_id.encode())
    common.update(msgspec.json.encode(prepared.model.outputs))
    for key, value in prepared.weights.items():
        common.update(key.encode() + np.ascontiguousarray(value).tobytes())
    paths = {}
    for name, plan in plans.items():
        digest = common.copy()
        digest.update(msgspec.json.encode(tuple(o.placement for o in plan.operators)))
        if plan.settings != DEFAULT:
            digest.update(msgspec.json.encode(plan.settings))
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
