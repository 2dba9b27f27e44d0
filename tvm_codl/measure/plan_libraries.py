"""The libraries of plans: built from the partitioned network, kept in the cache, opened on a phone."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tvm

from tvm_codl.build.elf import check_library
from tvm_codl.build.kernel_cache import KernelCache
from tvm_codl.build.library import build, build_adaptive
from tvm_codl.build.pool import build_all, last_line
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import CodlError, DeviceError, UserError
from tvm_codl.kernels.toolchain import Toolchain
from tvm_codl.measure.choices import check_settings
from tvm_codl.measure.context import Context, Log
from tvm_codl.measure.runnable import runnable
from tvm_codl.measure.worker import open_remote
from tvm_codl.paths import cache_dir
from tvm_codl.plan.adaptive import StatePlan
from tvm_codl.plan.plan import Plan
from tvm_codl.records.settings import DEFAULT
from tvm_codl.relay.pipeline import partition
from tvm_codl.relay.prepared import Prepared
from tvm_codl.runtime.comodule import CoModule


def build_library(
    prepared: Prepared,
    plan: Plan,
    profile: DeviceProfile,
    tools: Toolchain,
    out: Path,
    log: Log = lambda _: None,
    open: Callable[[Path], object] = lambda path: None,
) -> Path:
    """Builds one ``.so`` at ``out`` for a phone of that profile; what one processor's compiler rejects goes to the other.

    ``open`` opens a library on the phone, where its compiler shall be asked too.  Raises :class:`UserError` for settings that the phone cannot do, and where TVM does not compile the network.
    """
    check_settings(plan.settings, profile)
    path = out

    def build_it(plans: Mapping[str, Plan]) -> None:
        nonlocal path
        path = _build(prepared, plans[""], tools, out)
        open(path)

    runnable(prepared, {"": plan}, profile, tools, log, build_it, open)
    log(f"built {path.name} ({path.stat().st_size / 1e6:.0f} MB)")
    return path


def build_adaptive_library(
    prepared: Prepared,
    plans: Sequence[StatePlan],
    profile: DeviceProfile,
    tools: Toolchain,
    out: Path,
    log: Log = lambda _: None,
) -> Path:
    """Builds one ``.so`` of several plans (:func:`~tvm_codl.plan.adaptive.adaptive_plans`), which chooses as it runs."""
    for each in plans:
        check_settings(each.plan.settings, profile)
    parts = [(p.name, p.state, partition(prepared, p.plan), msgspec.to_builtins(p.plan)) for p in plans]
    with tools.scheduled():
        # They all have one plan's settings (plan/adaptive.py).
        gpu = tools.gpu_with(plans[0].plan.settings.gpu_memory)
        cache = KernelCache(tools.build_id)
        path = build_adaptive(parts, tools.cpu, gpu, prepared.model.outputs, cache).export(out)
    log(f"built {path.name} ({path.stat().st_size / 1e6:.0f} MB): {', '.join(p.name for p in plans)}")
    return path


def _build(
    prepared: Prepared,
    plan: Plan,
    tools: Toolchain,
    out: Path | None,
    note_kernels: bool = False,
    backwards: bool = False,
) -> Path:
    """``out``: None to compile its kernels alone, for the cache.  ``note_kernels``: also writes a file for :func:`kernels_of`
    beside it; ``backwards`` as in :func:`.compile_regions`.  Raises :class:`UserError` where TVM does not compile the network for
    that phone."""
    try:
        partitioned = partition(prepared, plan)
        with tools.scheduled():
            gpu = tools.gpu_with(plan.settings.gpu_memory)
            cache, outputs = KernelCache(tools.build_id), prepared.model.outputs
            library = build(partitioned, tools.cpu, gpu, msgspec.to_builtins(plan), outputs, cache, backwards)
        if out is None:
            return cache_dir()
        if note_kernels:
            _kernels_beside(out).parent.mkdir(parents=True, exist_ok=True)
            _kernels_beside(out).write_bytes(msgspec.json.encode(library.kernels))
        return library.export(out)
    except (CodlError, OSError):
        raise
    except Exception as error:  # a compiler raises whatever it likes
        raise UserError(
            f"TVM does not compile {prepared.name} for {tools.cpu.attrs.get('mtriple') or 'this machine'} by that plan",
            last_line(error),
            "tvm-codl measure MODEL tells which operators run on which processor; plan with these",
        ) from error


def _kernels_beside(library: Path) -> Path:
    return library.with_suffix(".kernels.json")


def kernels_of(library: Path) -> frozenset[str]:
    """Digests of the GPU kernels of a library in the cache (:mod:`tvm_codl.build.contents`).

    One that an earlier version built is its only kernel.
    """
    try:
        return msgspec.json.decode(_kernels_beside(library).read_bytes(), type=frozenset[str])
    except (OSError, msgspec.DecodeError):
        return frozenset((library.stem,))


def libraries_for(
    prepared: Prepared,
    plans: Mapping[str, Plan],
    tools: Toolchain,
    log: Log,
    ready: Callable[[str, Path], object] = lambda name, path: None,
) -> dict[str, Path]:
    """The libraries of plans, by the plans' names; builds in parallel those that are not in the cache.

    Equal placements have one library.  ``ready`` gets each plan's name and library, while others are being built.
    """
    common = hashlib.sha256(prepared.digest.encode() + tools.build_id.encode())
    paths = {}
    for name, plan in plans.items():
        digest = common.copy()
        digest.update(msgspec.json.encode(tuple(o.placement for o in plan.operators)))
        if plan.settings != DEFAULT:
            digest.update(msgspec.json.encode(plan.settings))
        paths[name] = cache_dir() / "libraries" / f"{digest.hexdigest()[:24]}.so"
    missing = {path: plans[name] for name, path in paths.items() if not path.exists()}

    def tell(*built: Path) -> None:
        for name, path in paths.items():
            if path in built:
                ready(name, path)

    there = set(paths.values()) - missing.keys()
    if missing:
        log(f"building {len(missing)} libraries")
        _build_missing(prepared, missing, tools, log, tell, lambda: tell(*there))
    else:
        tell(*there)
    return paths


def _build_missing(
    prepared: Prepared,
    missing: Mapping[Path, Plan],
    tools: Toolchain,
    log: Log,
    ready: Callable[[Path], object],
    meanwhile: Callable[[], object],
) -> None:
    # Those with the most to compile first; the others fill what time is left on one core.
    jobs = sorted(missing.items(), key=lambda job: -sum(o.placement.on == "split" for o in job[1].operators))
    helpers = max(0, len(os.sched_getaffinity(0)) - len(jobs))

    def build_one(i: int) -> Path:
        path, plan = jobs[i % len(jobs)]
        # A core without a library of its own compiles for another one.
        return _build(prepared, plan, tools, path if i < len(jobs) else None, True, backwards=i % 2 == 1)

    waiting = set(range(len(jobs)))
    for index, outcome in build_all(len(jobs) + helpers, build_one, meanwhile=meanwhile):
        if index not in waiting:
            continue
        if outcome.path is None:
            raise UserError(f"building the library of {prepared.name} failed", outcome.error, "tvm-codl doctor")
        path = jobs[index][0]
        log(f"built {path.name} ({path.stat().st_size / 1e6:.0f} MB)")
        ready(path)
        waiting.remove(index)
        if not waiting:
            break


def open_plans(prepared: Prepared, plans: Mapping[str, Plan], context: Context) -> dict[str, CoModule]:
    """:func:`open_runnable`'s libraries."""
    return open_runnable(prepared, plans, context)[1]


def open_runnable(
    prepared: Prepared,
    plans: Mapping[str, Plan],
    context: Context,
    opened: Callable[[CoModule], object] = lambda module: None,
) -> tuple[dict[str, Plan], dict[str, CoModule]]:
    """The plans as they run on the phone, what one processor's compiler rejects on the other (:func:`.runnable`), and their
    libraries, ready to run; both by the plans' names.

    The phone opens each library, and ``opened`` gets it, while the others are being built.
    """
    modules: dict[str, CoModule] = {}

    def ready(name: str, path: Path) -> None:
        modules[name] = open_library(path, context.phone)
        opened(modules[name])

    def attempt(placed: Mapping[str, Plan]) -> None:
        libraries_for(prepared, placed, context.tools, context.log, ready)

    def open(path: Path) -> CoModule:
        return open_library(path, context.phone)

    placed = runnable(prepared, plans, context.profile, context.tools, context.log, attempt, open)
    return placed, {name: modules[name] for name in placed}


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
        raise DeviceError(f"the phone cannot load {path.name}", last_line(error), "tvm-codl doctor") from error
