"""Measuring a small network on a real phone into a store; also a program: ``python -m tests.phone.survivor STORE [HOST PORT KEY]``."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import tvm
from tvm import tir

from tvm_codl.build.library import Library
from tvm_codl.device.connect import connect
from tvm_codl.device.spec import Spec, Tracker
from tvm_codl.frontend.load import load_model
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import axes
from tvm_codl.kernels.toolchain import toolchain
from tvm_codl.measure.context import Context
from tvm_codl.measure.libraries import build_batch
from tvm_codl.measure.measurer import Measurer
from tvm_codl.measure.probe import Probe, split_probes, whole_probes
from tvm_codl.measure.settings import Settings
from tvm_codl.plan.plan import Placement
from tvm_codl.records.store import RecordStore
from tvm_codl.relay.pipeline import extract

#: Many samples, so that a session lasts long enough to be killed in the middle; and no alarm for drift, whoever else runs
#: on this machine, so that each candidate is measured once.
SLOW = Settings(fewest=15, most=15, baseline_every=4, drift=1e6, first_s=20.0, patience_s=60.0)


@cache
def network() -> tuple[OpGraph, Any]:
    """Its graph and its weights."""
    graph, weights, _ = extract(load_model("zoo:small").module)
    return graph, weights


@cache
def probes() -> tuple[Probe, ...]:
    graph, _ = network()
    legal = {o.id: axes(o, graph) for o in graph.operators}
    splits = [
        (id, Placement("split", "height", at)) for id, along in legal.items() if "height" in along for at in (4, 6)
    ]
    return tuple(whole_probes(graph)[:8] + split_probes(graph, legal, splits)[:8])


def measurer(phone: Any, store: RecordStore, settings: Settings = SLOW, log: Any = print, build: str = "") -> Measurer:
    (graph, weights), tools = network(), toolchain(phone.profile)
    tools = msgspec.structs.replace(tools, kernel_id=tools.kernel_id + build, build_id=tools.build_id + build)
    return Measurer(graph, weights, Context(phone, store, tools, log), settings)


@contextlib.contextmanager
def measuring(store: Path, where: Spec | None = None, settings: Settings = SLOW) -> Iterator[Measurer]:
    with connect(where, timeout_s=30.0) as phone, RecordStore(store) as opened:
        yield measurer(phone, opened, settings)


def poisoned(victim: Probe, call: str) -> Any:
    """In the place of ``build_batch``: the victim's CPU kernels call that function of the C library instead."""

    def build(graph: OpGraph, weights: Any, probes: Sequence[Probe], *rest: Any) -> Library:
        real = build_batch(graph, weights, probes, *rest)
        if victim not in probes:
            return real
        program, functions = json.loads(real.module["program"]()), {}
        for step in program["cpu"]:
            if step["do"] == "call" and step["region"] == probes.index(victim):
                step["function"] = name = f"poison_{len(functions)}"
                params = [tir.Var(f"p{i}", "handle") for i in range(len(step["args"]))]
                buffers = [tir.decl_buffer(view["shape"], view["dtype"]) for view in step["args"]]
                body = tir.Evaluate(tir.call_extern("int32", call))
                made = tir.PrimFunc(params, body, buffer_map=dict(zip(params, buffers, strict=True)))
                functions[name] = made.with_attr("global_symbol", name)
        about = msgspec.json.encode(real.about).decode()
        root = tvm.get_global_func("codl.create_library")(json.dumps(program), about, 0)
        for module in (tvm.build(tvm.IRModule(functions), target=rest[0]), *real.module.imported_modules):
            root.import_module(module)
        return Library(root, real.about, real.launches)

    return build


def main(store: str, *where: str) -> None:
    place = Tracker(where[0], int(where[1]), where[2]) if where else None
    with measuring(Path(store), place) as running:
        print(f"{len(running.measure(probes()))} records", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
