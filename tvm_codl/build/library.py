"""Builds one shared library of a partitioned module: CPU code, OpenCL kernels, split weights, and the program."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tvm
from tvm.contrib import cc

from tvm_codl.build import dataflow
from tvm_codl.build.adaptive import join_flows, split_kernels
from tvm_codl.build.contents import contents
from tvm_codl.build.elf import check_android
from tvm_codl.build.kernel import Kernel, host_modules, opencl_module
from tvm_codl.build.kernel_cache import KernelCache
from tvm_codl.build.kernels import Kernels, compile_regions
from tvm_codl.build.launches import Launch
from tvm_codl.build.program import FORMAT, stored_weights, write
from tvm_codl.errors import UserError, WorkplaceError
from tvm_codl.runtime import plugin
from tvm_codl.runtime.about import About, PlanInfo, PortInfo, RegionInfo
from tvm_codl.runtime.platforms import Platform, name_of, platform, triple_of


@dataclass(frozen=True)
class Library:
    """The module, its description, each region's launches on the GPU, in order, and the digests of its kernels there
    (:mod:`.contents`)."""

    module: tvm.runtime.Module
    about: About
    launches: tuple[tuple[Launch, ...], ...] = ()
    kernels: tuple[str, ...] = ()

    def export(self, path: Path) -> Path:
        """Writes one ``.so`` with the compiler for the platform of the CPU's target; the file appears whole or not at all.

        Raises :class:`UserError` where the compiler is missing or fails, and for a library that Android would not load.
        """
        if path.exists() and not path.is_file():
            what = f"{path} is no file that a library could replace"
            raise UserError(what, "it is a device, a pipe or a folder", "-o model.so")
        name = name_of(triple_of(self.about.build["cpu"]))
        link = _linker_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".building-") as folder:
            partial = Path(folder) / f"{path.stem}.so"
            export(self.module, partial, link)
            if name == "android-arm64":
                check_android(partial)
            os.replace(partial, path)
        return path


def export(module: tvm.runtime.Module, path: Path, fcompile: Callable[..., Any] | None) -> None:
    """``module.export_library`` with errors told apart.

    Raises :class:`WorkplaceError` without a compiler or room on the disk, :class:`UserError` for a module that does not
    link.
    """
    if fcompile is None and cc.get_cc() is None:
        raise WorkplaceError("no C++ compiler", "looked for g++, gcc, clang++ and clang on PATH", "apt-get install g++")
    try:
        module.export_library(str(path), fcompile=fcompile)
    except (RuntimeError, OSError) as error:
        words = str(error).partition("\nCommand line:")[0].strip()[-500:]
        if isinstance(error, OSError) or os.strerror(errno.ENOSPC) in words:
            places = f"{path.parent} {tempfile.gettempdir()}"
            raise WorkplaceError(f"{path.name} cannot be linked here", words, f"df -h {places}") from error
        raise UserError(f"linking {path.name} failed", words, "tvm-codl doctor (is a compiler installed?)") from error


def linker_for(target: tvm.target.Target) -> Callable[..., None] | None:
    """The :func:`linker` for a target's (or its host's) LLVM code; None for this machine's own.

    Raises :class:`UserError` where the platform has no compiler here.
    """
    return _linker_of(name_of(str((target.host or target).attrs.get("mtriple", ""))))


def _linker_of(name: str) -> Callable[..., None] | None:
    return None if name == "host" else linker(platform(name))


def linker(where: Platform) -> Callable[..., None]:
    """Links shared libraries with the compiler and the options of a platform."""
    options = [*where.cc_options, "-lm"]
    # Where nothing runs on the CPU, TVM asks the linker for the triple.
    return cc.cross_compiler(where.cxx, options, get_target_triple=lambda: where.triple)


def build(
    partitioned: tvm.IRModule,
    cpu: tvm.target.Target,
    gpu: tvm.target.Target,
    plan: Any = None,
    output_names: tuple[str, ...] = (),
    cache: KernelCache | None = None,
    backwards: bool = False,
) -> Library:
    """Compiles the result of ``PartitionCoExecution``.  Weights are stored split and packed: loading does no work on them.

    Without a ``cache`` every kernel is compiled.  ``backwards`` as in :func:`.compile_regions`.  Raises :class:`UserError` where the module breaks the partition's contract.
    """
    return build_dataflow(dataflow.read(partitioned), cpu, gpu, plan, output_names, cache=cache, backwards=backwards)


def build_dataflow(
    flow: dataflow.Dataflow,
    cpu: tvm.target.Target,
    gpu: tvm.target.Target,
    plan: Any = None,
    output_names: tuple[str, ...] = (),
    keep_weights: bool = True,
    cache: KernelCache | None = None,
    backwards: bool = False,
) -> Library:
    """The library of a dataflow.  Without ``keep_weights`` its weights are zero: good enough for timing."""
    kernels = _compile(flow, cpu, gpu, cache or KernelCache(), backwards)
    about = About(_inputs(flow), _outputs(flow, output_names), _regions(flow), _build_info(cpu, gpu), plan)
    program = write(flow, kernels)
    weights = stored_weights(flow, kernels)
    if not keep_weights:
        program["weights"] = [{**w, "name": ""} for w in program["weights"]]
        weights = {}
    return _made(_make_module(program, about, weights, kernels, cpu), about, _launches(flow, kernels), kernels)


def build_adaptive(
    partitioned: Sequence[tuple[str, str, tvm.IRModule, Any]],
    cpu: tvm.target.Target,
    gpu: tvm.target.Target,
    output_names: tuple[str, ...] = (),
    cache: KernelCache | None = None,
) -> Library:
    """One library of several plans of one network: each by its name, state, partitioned module and JSON.

    The first plan is the default; ``launches`` of the result are its.
    """
    flows = [dataflow.read(module) for _, _, module, _ in partitioned]
    whole = join_flows(flows)
    kernels = _compile(whole, cpu, gpu, cache or KernelCache())
    parts = split_kernels(flows, kernels)
    plans = tuple(
        PlanInfo(name, state, _outputs(flow, output_names), _regions(flow), plan)
        for (name, state, _, plan), flow in zip(partitioned, flows, strict=True)
    )
    first = plans[0]
    about = About(_inputs(flows[0]), first.outputs, first.regions, _build_info(cpu, gpu), first.plan, plans)
    entries = [
        {"name": plan.name, "state": plan.state, "program": write(flow, part)}
        for plan, flow, part in zip(plans, flows, parts, strict=True)
    ]
    weights = {n: w for flow, part in zip(flows, parts, strict=True) for n, w in stored_weights(flow, part).items()}
    program = {"format": FORMAT, "plans": entries}
    return _made(_make_module(program, about, weights, kernels, cpu), about, _launches(flows[0], parts[0]), kernels)


def _made(
    module: tvm.runtime.Module, about: About, launches: tuple[tuple[Launch, ...], ...], kernels: dict[str, Kernels]
) -> Library:
    return Library(module, about, launches, contents(_all(kernels)))


def _all(kernels: dict[str, Kernels]) -> list[Kernel]:
    """Every kernel once, in an order that does not depend on where they were found."""
    held = {name: kernel for built in kernels.values() for name, kernel in built.kernels.items()}
    return [held[name] for name in sorted(held)]


def _compile(
    flow: dataflow.Dataflow,
    cpu: tvm.target.Target,
    gpu: tvm.target.Target,
    cache: KernelCache,
    backwards: bool = False,
) -> dict[str, Kernels]:
    plugin.load()
    targets = {"cpu": tvm.target.Target(cpu, host=cpu), "gpu": tvm.target.Target(gpu, host=cpu)}
    built = {name: compile_regions(flow, name, target, cache, backwards) for name, target in targets.items()}
    return {name: kernels for name, kernels in built.items() if kernels is not None}


def _make_module(
    program: dict[str, Any],
    about: About,
    weights: dict[str, np.ndarray],
    kernels: dict[str, Kernels],
    cpu: tvm.target.Target,
) -> tvm.runtime.Module:
    arguments = [x for name, value in weights.items() for x in (name, tvm.nd.array(value))]
    create = tvm.get_global_func("codl.create_library")
    root = create(json.dumps(program), msgspec.json.encode(about).decode(), len(weights), *arguments)
    # TVM asks a module with code for the target, and looks for OpenCL kernels in what that one imports.
    nothing = tvm.tir.PrimFunc([], tvm.tir.Evaluate(0)).with_attr("global_symbol", "codl_nothing")
    host = tvm.build(tvm.IRModule({"codl_nothing": nothing}), target=cpu)
    device = opencl_module(_all(kernels))
    if device is not None:
        host.import_module(device)
    root.import_module(host)
    for code in host_modules(_all(kernels)):
        root.import_module(code)
    return root


def _inputs(flow: dataflow.Dataflow) -> tuple[PortInfo, ...]:
    return tuple(PortInfo(n, flow.roots[v.root].shape, flow.roots[v.root].dtype) for n, v in flow.inputs)


def _outputs(flow: dataflow.Dataflow, names: tuple[str, ...]) -> tuple[PortInfo, ...]:
    ports = []
    for index, argument in enumerate(flow.outputs):
        root, part = flow.roots[argument.part.root], argument.part
        name = names[index] if index < len(names) else f"output{index}"
        ports.append(PortInfo(name, root.part_shape(part), root.dtype, tuple(argument.crop or ())))
    return tuple(ports)


def _regions(flow: dataflow.Dataflow) -> tuple[RegionInfo, ...]:
    return tuple(RegionInfo(r.name, r.processor, r.operators) for r in flow.regions)


def _build_info(cpu: tvm.target.Target, gpu: tvm.target.Target) -> dict[str, str]:
    return {"tvm": tvm.__version__, "cpu": str(cpu), "gpu": str(gpu)}


def _launches(flow: dataflow.Dataflow, kernels: dict[str, Kernels]) -> tuple[tuple[Launch, ...], ...]:
    regions: list[tuple[Launch, ...]] = [()] * len(flow.regions)
    for built in kernels.values():
        for compiled in built.regions:
            called = [built.kernels[call.function].launches for call in compiled.calls if call.function]
            regions[compiled.region] = tuple(launch for launches in called for launch in launches)
    return tuple(regions)
