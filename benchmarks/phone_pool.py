"""How much faster four phones behind one tracker measure than one, with a stand-in for the kernels alone.

Four reference phones on one machine would fight for its cores, which four phones do not.  So every CPU kernel is
replaced by a wait of fixed length in which no core works; all else is what a session always does: libraries are built,
sent, loaded and run by the co-executor in real server processes, found through a real tracker, with warm-up, samples,
baseline and records.  The figure says how well the client keeps several phones busy, and nothing about kernels.

Prints JSON; ``ratio`` is candidates a minute of all phones over those of one, each round measuring the same candidates
anew, one phone and all phones in turn.  ``python benchmarks/pool.py [--phones 4] [--rounds 3] [--wait-ms 50]``
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tvm
from tvm import tir

from tvm_codl.build.library import Library, build_dataflow
from tvm_codl.device.connect import TrackerPhones
from tvm_codl.device.cores import phone_environment
from tvm_codl.device.reference.serve import LOOPBACK, command
from tvm_codl.device.spec import Tracker
from tvm_codl.device.tracker_client import tracker_summary
from tvm_codl.errors import DeviceError
from tvm_codl.frontend.load import load_model
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import axes
from tvm_codl.kernels.toolchain import toolchain
from tvm_codl.measure import libraries
from tvm_codl.measure.context import Context
from tvm_codl.measure.libraries import probe_dataflow
from tvm_codl.measure.measurer import Measurer
from tvm_codl.measure.phone_pool import PhonePool
from tvm_codl.measure.probe import Probe, split_probes, whole_probes
from tvm_codl.measure.settings import Settings
from tvm_codl.plan.candidates import legal_cuts
from tvm_codl.plan.plan import Placement
from tvm_codl.records.store import RecordStore
from tvm_codl.relay.pipeline import extract

STAND_IN = (
    "every CPU kernel waits for a fixed time instead of computing; servers, tracker, sessions and uploads are real"
)
KEY = "stand-in"
START_S = 60.0
#: The known operators are timed as in every session, but raise no alarm: the GPU's is a real kernel, and slows down where
#: the servers share this machine's cores.
SETTINGS = Settings(drift=1e6)


def waiting_batch(us: int) -> Any:
    """In the place of ``build_batch``: the same library, its CPU functions replaced by waits of ``us`` microseconds."""

    def build(graph: OpGraph, weights: Mapping[str, Any], probes: Sequence[Probe], cpu: Any, gpu: Any) -> Library:
        real = build_dataflow(probe_dataflow(graph, weights, probes), cpu, gpu, keep_weights=False)
        program = json.loads(real.module["program"]())
        calls = {s["function"]: s["args"] for s in program["cpu"] if s["do"] == "call"}
        if not calls:
            return real
        waits = tvm.IRModule({name: _wait(name, views, us) for name, views in calls.items()})
        about = msgspec.json.encode(real.about).decode()
        root = tvm.get_global_func("codl.create_library")(json.dumps(program), about, 0)
        root.import_module(tvm.build(waits, target=cpu))
        for other in real.module.imported_modules:
            if not all(other.implements_function(name) for name in calls):
                root.import_module(other)
        return Library(root, real.about, real.launches)

    return build


def _wait(name: str, views: list[dict[str, Any]], us: int) -> tir.PrimFunc:
    params = [tir.Var(f"p{i}", "handle") for i in range(len(views))]
    buffers = {p: tir.decl_buffer(v["shape"], v["dtype"]) for p, v in zip(params, views, strict=True)}
    body = tir.Evaluate(tir.call_extern("int32", "usleep", us))
    return tir.PrimFunc(params, body, buffer_map=buffers).with_attr("global_symbol", name)


@contextlib.contextmanager
def shelf(phones: int, folder: Path) -> Iterator[Tracker]:
    """A tracker and that many servers, registered."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, **phone_environment()}

    def start(line: list[str]) -> None:
        with (folder / f"{len(started)}.log").open("wb") as log:
            started.append(subprocess.Popen(line, env=environment, stdout=log, stderr=log))

    try:
        with socket.create_server((LOOPBACK, 0)) as free_port:
            where = Tracker(LOOPBACK, int(free_port.getsockname()[1]), KEY)
        at = ["--host", LOOPBACK, "--port", str(where.port), "--port-end", str(where.port + 1)]
        start([sys.executable, "-m", "tvm.exec.rpc_tracker", *at])
        for _ in range(phones):
            start(command(port=0, key=KEY, tracker=f"{where.host}:{where.port}", parent=os.getpid()))
        free(where, phones)
        yield where
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def free(where: Tracker, phones: int) -> None:
    """Waits until that many phones are free."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        with contextlib.suppress(DeviceError):  # a tracker that is still starting
            if tracker_summary(where.host, where.port).get(KEY, (0, 0))[1] >= phones:
                return
        time.sleep(0.1)
    raise SystemExit(f"{phones} servers did not register within {START_S:g} s")


def candidates(graph: OpGraph, count: int) -> list[Probe]:
    """CPU pieces, different ones."""
    legal = {o.id: axes(o, graph) for o in graph.operators}
    cuts = [
        (id, Placement("split", axis, at))
        for id, along in legal.items()
        for axis, one in along.items()
        for at in legal_cuts(one)
    ]
    probes = [*whole_probes(graph), *split_probes(graph, legal, cuts)]
    return [p for p in probes if p.processor == "cpu"][:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--candidates", type=int, default=48)
    parser.add_argument("--wait-ms", type=float, default=50.0)
    parser.add_argument("--build-only", action="store_true", help="leave the libraries in the cache and stop")
    options = parser.parse_args()
    libraries.build_batch = waiting_batch(round(options.wait_ms * 1e3))
    graph, weights, _ = extract(load_model("zoo:small").module)
    probes = candidates(graph, options.candidates)
    rates: dict[int, list[float]] = {1: [], options.phones: []}
    with tempfile.TemporaryDirectory() as folder, shelf(options.phones, Path(folder)) as where:
        for round_ in range(options.rounds):
            for phones in rates if round_ % 2 == 0 else reversed(rates):
                free(where, options.phones)
                pool = PhonePool(TrackerPhones(where), most=phones)
                assert len(pool.phones) == phones
                tools = toolchain(pool.profile)
                build = f"{tools.build_id}-wait-{options.wait_ms:g}"
                tools = msgspec.structs.replace(tools, kernel_id=build, build_id=build)
                with RecordStore(Path(folder) / f"{round_}-{phones}.sqlite") as store:
                    measurer = Measurer(graph, weights, Context(pool, store, tools), SETTINGS)
                    measurer.libraries(probes)
                    if options.build_only:
                        return pool.close()
                    started = time.monotonic()
                    records = measurer.measure(probes)
                    seconds = time.monotonic() - started
                    assert len(store) == len(probes), "each candidate once"
                assert len(records) == len(probes) and all(r.ok for r in records), [r.error for r in records]
                rates[phones].append(60 * len(records) / seconds)
                pool.close()
    ratios = [many / one for one, many in zip(rates[1], rates[options.phones], strict=True)]
    print(
        json.dumps(
            {
                "stand_in": STAND_IN,
                "wait_ms": options.wait_ms,
                "phones": options.phones,
                "candidates": len(probes),
                "cores": len(os.sched_getaffinity(0)),
                "candidates_a_minute": {
                    "one_phone": _spread(rates[1]),
                    "all_phones": _spread(rates[options.phones]),
                },
                "ratio": _spread(ratios),
            }
        )
    )


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 2),
        "min": round(min(values), 2),
        "max": round(max(values), 2),
        "n": len(values),
    }


if __name__ == "__main__":
    main()
