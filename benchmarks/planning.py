"""How long it takes to plan each network of the zoo.

    python benchmarks/planning.py [--records STORE] [--rounds 5] [NAME ...]

Prints JSON: for each network its operators and candidates, and the median seconds of ``candidates`` (every piece predicted
by both processors' models) and of ``search`` (costs, exact minimum, simulations), after one round that is not counted and beside
one in which nothing of the network was seen before.  The cost model is fitted from a record store, by default the phone's;
without one, from made-up times: its speed does not depend on what it learned.  Everything runs on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

#: Planning has one core, whatever the libraries below it would take.
CORES = 1
LIMIT_S = 0.5
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = str(CORES)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.predict import SAMPLES, samples  # noqa: E402
from tvm_codl.cost.model import CostModel  # noqa: E402
from tvm_codl.cost.training import choose, train  # noqa: E402
from tvm_codl.cost.transfers import TransferCost  # noqa: E402
from tvm_codl.frontend import zoo  # noqa: E402
from tvm_codl.frontend.load import load_model  # noqa: E402
from tvm_codl.graph.opgraph import OpGraph  # noqa: E402
from tvm_codl.graph.split import axes  # noqa: E402
from tvm_codl.paths import default_records  # noqa: E402
from tvm_codl.plan.candidates import candidates  # noqa: E402
from tvm_codl.plan.search import search  # noqa: E402
from tvm_codl.relay.pipeline import prepare  # noqa: E402

#: As measured on the reference phone, to two digits.
SHARING = TransferCost(
    wait_cpu_ms=0.05,
    wait_gpu_ms=0.1,
    join_ms_per_mb=0.3,
    signal_ms=0.02,
    feed_ms=0.01,
    launch_ms=0.01,
    start_ms=0.05,
)


def cost_model(store: Path | None) -> CostModel:
    path = store or default_records()
    return train(choose(path), path, check=False) if path.is_file() else CostModel.fit(samples(SAMPLES))


def planned(graph: OpGraph, model: CostModel, rounds: int) -> dict[str, Any]:
    """Times of one network, and what its plan claims."""
    first, times = 0.0, []
    for i in range(rounds + 1):
        began = time.perf_counter()
        legal = {operator.id: axes(operator, graph) for operator in graph.operators}
        options = candidates(graph, legal, model)
        between = time.perf_counter()
        found = search(graph, options, SHARING, legal)
        ended = time.perf_counter()
        if i:
            times.append((between - began, ended - between))
        else:
            first = ended - began
    return {
        "operators": len(graph.operators),
        "candidates": sum(map(len, options.values())),
        "overlaps": sum(any(o.placement.over) for own in options.values() for o in own),
        "first_s": first,
        "candidates_s": median(a for a, _ in times),
        "find_s": median(b for _, b in times),
        "planning_s": median(a + b for a, b in times),
        "exact": found.exact,
        "gap": found.total_ms / found.bound_ms - 1,
        "predicted_ms": found.plan.predicted_ms,
        "planned_overlaps": sum(any(o.placement.over) for o in found.plan.operators),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=[entry.name for entry in zoo.ENTRIES])
    parser.add_argument("--records", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    model = cost_model(given.records)
    nets = {name: planned(prepare(load_model(f"zoo:{name}")).graph, model, given.rounds) for name in given.names}
    slowest = max(nets, key=lambda name: nets[name]["planning_s"])
    seconds = nets[slowest]["planning_s"]
    result = {"networks": nets, "slowest": {"name": slowest, "s": seconds}, "limit_s": LIMIT_S, "cores": CORES}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
