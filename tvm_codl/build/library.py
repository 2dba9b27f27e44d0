"""A partitioned module becomes one shared library: CPU code, OpenCL kernels, split weights, and the program."""

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
from tvm.contrib import cc, ndk

from tvm_codl.build import dataflow
from tvm_codl.build.adaptive import joined, parted
from tvm_codl.build.elf import check_android
from tvm_codl.build.kernels import Kernels, compile_regions
from tvm_codl.build.launches import Launch
from tvm_codl.build.program import FORMAT, stored_weights, write
from tvm_codl.errors import UserError, WorkplaceError
from tvm_codl.runtime import plugin
from tvm_codl.runtime.about import About, PlanInfo, PortInfo, RegionInfo
from tvm_codl.runtime.platforms import NDK_COMPILER, Platform, name_of, platform


@dataclass(frozen=True)
class Library:
    """The built module, what it says of itself, and each region's launches on the GPU, in order."""

    module: tvm.runtime.Module
    about: About
    launches: tuple[tuple[Launch, ...], ...] = ()

    def export(self, path: Path, fcompile: Callable[..., Any] | None = None) -> Path:
        """Writes one ``.so`` for the platform of the CPU's target, with that one's compiler.

        ``fcompile``, as ``export_library`` takes it, links in another way.  The file appears whole or not at all.
        Raises :class:`UserError` where the compiler is missing or fails, and for what Android would not load.
        """
        if path.exists() and not path.is_file():
            raise UserError(
                f"{path} is no file that a library could replace", "it is a device, a pipe or a folder", "-o model.so"
            )
        name = name_of(_triple(self.about.build["cpu"]))
        fcompile = fcompile or _linker_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".building-") as folder:
            partial = Path(folder) / f"{path.stem}.so"
            export(self.module, partial, fcompile)
            if name == "android-arm64":
                check_android(partial)
            os.replace(partial, path)
        return path


def export(module: tvm.runtime.Module, path: Path, fcompile: Callable[..., Any] | None) -> None:
    """``module.export_library`` that tells a computer without a compiler, or without room, from a module that does not link.

    Raises :class:`WorkplaceError` for the former, :class:`UserError` for the latter.
    """
    if fcompile is None and cc.get_cc() is None:
        raise WorkplaceError("no C++ compiler", "looked for g++, gcc, clang++ and clang on PATH", "apt-get install g++")
    try:
        module.export_library(str(path), fcompile=fcompile)
    except (RuntimeError, OSError) as error:
        words = str(error).strip()[-500:]
        if isinstance(error, OSError) or os.strerror(errno.ENOSPC) in words:
            places = f"{path.parent} {tempfile.gettempdir()}"
            raise WorkplaceError(f"{path.name} cannot be linked here", words, f"df -h {places}") from error
        raise UserError(f"linking {path.name} failed", words, "tvm-codl doctor (is a compiler installed?)") from error


def linker_for(target: tvm.target.Target) -> Callable[..., None] | None:
    """What links for a target with LLVM code, its own or its host's: :func:`linker` of its platform, None for the host's.

    Raises :class:`UserError` where that platform has no compiler here.
    """
    return _linker_of(name_of(str((target.host or target).attrs.get("mtriple", ""))))


def _linker_of(name: str) -> Callable[..., None] | None:
    return None if name == "host" else linker(platform(name))


def linker(where: Platform) -> Callable[..., None]:
    """``ndk.create_shared`` with the compiler and the options of a platform."""

    def link(output: str, objects: list[str], options: Sequence[str] = ()) -> None:
        before = os.environ.get(NDK_COMPILER)
        os.environ[NDK_COMPILER] = where.cxx
        try:
            ndk.create_shared(output, objects, ["-shared", "-fPIC", *where.cc_options, "-lm", *options])
        finally:
            if before is None:
                del os.environ[NDK_COMPILER]
            else:
                os.environ[NDK_COMPILER] = before

    link.get_target_triple = lambda: where.triple  # type: ignore[attr-defined]  # asked where nothing runs on the CPU
    return link


def build(
    partitioned: tvm.IRModule,
    cpu: tvm.target.Target,
    gpu: tvm.target.Target,
    plan: Any = None,
    output_names: tuple[str, ...] = (),
) -> Library:
    """Compiles the result of ``PartitionCoExecution``.  Weights are split, packed and stored; nothing is left to do at load.

    Raises :class:`UserError` where the module breaks the partition's contract.
    """
    return build_dataflow(dataflow.read(partitioned), cpu, gpu, plan, output_names)


def build_dataflow(
    flow: dataflow.Dataflow,
    cpu: tvm.target.Target,
    gpu: tvm.target.Target,
    plan: Any = None,
    output_names: tuple[str, ...] = (),
    keep_weights: bool = True,
) -> Library:
    """The library of a dataflow.  Without ``keep_weights`` its weights are zero: such a library is only timed."""
    kernels = _compiled(flow, cpu, gpu)
    about = About(
        _inputs(flow),
        _outputs(flow, output_names),
        _regions(flow),
        _makers(cpu, gpu),
        plan,
    )
    program = write(flow, kernels)
    weights = stored_weights(flow, kernels)
    if not keep_weights:
        program["weights"] = [{**w, "name": ""} for w in program["weights"]]
        weights = {}
    return Library(_root(program, about, weights, kernels), about, _launches(flow, kernels))


def build_adaptive(
    partitioned: Sequence[tuple[str, str, tvm.IRModule, Any]],
    cpu: tvm.target.Target,
    gpu: tvm.target.Target,
    output_names: tuple[str, ...] = (),
) -> Library:
    """One library of several plans of one network: for each its name, its state, its partitioned module and its JSON.

    The first is the first choice.  ``launches`` of the result are the first plan's.
    """
    flows = [dataflow.read(module) for _, _, module, _ in partitioned]
    whole = joined(flows)
    kernels = _compiled(whole, cpu, gpu)
    parts = parted(flows, kernels)
    plans = tuple(
        PlanInfo(name, state, _outputs(flow, output_names), _regions(flow), plan)
        for (name, state, _, plan), flow in zip(partitioned, flows, strict=True)
    )
    first = plans[0]
    about = About(_inputs(flows[0]), first.outputs, first.regions, _makers(cpu, gpu), first.plan, plans)
    entries = [
        {"name": one.name, "state": one.state, "program": write(flow, part)}
        for one, flow, part in zip(plans, flows, parts, strict=True)
    ]
    weights = {n: w for flow, part in zip(flows, parts, strict=True) for n, w in stored_weights(flow, part).items()}
    program = {"format": FORMAT, "plans": entries}
    return Library(_root(program, about, weights, kernels), about, _launches(flows[0], parts[0]))


def _compiled(flow: dataflow.Dataflow, cpu: tvm.target.Target, gpu: tvm.target.Target) -> dict[str, Kernels]:
    plugin.load()
    kernels = {}
    for processor, target in (("cpu", cpu), ("gpu", gpu)):
        host = tvm.target.Target(target, host=cpu)
        built = compile_regions(flow, processor, host, f"codl_{processor}")
        if built is not None:
            kernels[processor] = built
    return kernels


def _root(
    program: dict[str, Any], about: About, weights: dict[str, np.ndarray], kernels: dict[str, Kernels]
) -> tvm.runtime.Module:
    arguments = [x for name, value in weights.items() for x in (name, tvm.nd.array(value))]
    create = tvm.get_global_func("codl.create_library")
    root = create(json.dumps(program), msgspec.json.encode(about).decode(), len(weights), *arguments)
    for built in kernels.values():
        root.import_module(built.library)
    return root


def _inputs(flow: dataflow.Dataflow) -> tuple[PortInfo, ...]:
    return tuple(PortInfo(n, flow.roots[v.root].shape, flow.roots[v.root].dtype) for n, v in flow.inputs)


def _outputs(flow: dataflow.Dataflow, names: tuple[str, ...]) -> tuple[PortInfo, ...]:
    return tuple(_output(flow, i, names) for i in range(len(flow.outputs)))


def _triple(target: str) -> str:
    """``mtriple`` of a target string; empty for this machine's."""
    return next((word.partition("=")[2] for word in target.split() if word.startswith("-mtriple=")), "")


def _regions(flow: dataflow.Dataflow) -> tuple[RegionInfo, ...]:
    return tuple(RegionInfo(r.name, r.processor, r.operators) for r in flow.regions)


def _makers(cpu: tvm.target.Target, gpu: tvm.target.Target) -> dict[str, str]:
    return {"tvm": tvm.__version__, "cpu": str(cpu), "gpu": str(gpu)}


def _launches(flow: dataflow.Dataflow, kernels: dict[str, Kernels]) -> tuple[tuple[Launch, ...], ...]:
    regions: list[tuple[Launch, ...]] = [()] * len(flow.regions)
    for built in kernels.values():
        for compiled in built.regions:
            calls = [built.launches.get(call.function, []) for call in compiled.calls]
            regions[compiled.region] = tuple(launch for launches in calls for launch in launches)
    return tuple(regions)


def _output(flow: dataflow.Dataflow, index: int, names: tuple[str, ...]) -> PortInfo:
    argument = flow.outputs[index]
    root = flow.roots[argument.part.root]
    stored = list(root.shape)
    if argument.part.axis >= 0:
        stored[argument.part.axis] = argument.part.hi - argument.part.lo
    name = names[index] if index < len(names) else f"output{index}"
    return PortInfo(name, tuple(stored), root.dtype, root.permutation(), tuple(argument.crop or ()))
