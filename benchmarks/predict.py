"""How long it takes to predict every candidate piece of a network of 100 operators.

    python benchmarks/predict.py

Prints JSON: seconds for ``candidates`` (describing all pieces, schedules, features, both processors' predictions) over
networks of 100 different convolutions that were not seen before, and over one that was; and seconds of one fit.  The model
is fitted to made-up times: its speed does not depend on what it learned.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests are no part of what is installed

from tests.unit.plan.networks import Network
from tvm_codl.cost.model import CostModel, Sample
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import axes
from tvm_codl.plan.candidates import candidates
from tvm_codl.records.workload import Workload, workloads

NETWORKS = 9
OPERATORS = 100
SAMPLES = 3000


def network(seed: int) -> OpGraph:
    """100 convolutions of differing channels and kernels, at 64, 32 and 16 rows."""
    made, draw, tensor = Network(1, 64, 64, 16), random.Random(seed), 0
    for i in range(OPERATORS):
        channels = 8 * draw.randint(2, 40)
        tensor = made.conv(tensor, channels, draw.choice((1, 3, 3, 5)), 2 if i in (30, 60) else 1)
    return made.graph()


def samples(count: int) -> list[Sample]:
    """Pieces with made-up times: work over a rate, with noise."""
    noise = np.random.default_rng(0)
    found: list[Workload] = []
    for seed in range(1000, 1100):
        graph = network(seed)
        for operator in graph.operators:
            cuts = [(a.name, 0, a.extent * k // 4) for a in axes(operator, graph).values() for k in (1, 2, 3)]
            found += [Workload.of(operator, graph), *workloads(operator, graph, cuts)]
        if len(found) >= count // 2:
            break
    chosen = found[: count // 2]
    ms = [(w.flops / 1e8 + w.bytes_out / 1e7) * float(noise.lognormal(0, 0.03)) for w in chosen]
    return [Sample(w, on, t) for w, t in zip(chosen, ms, strict=True) for on in ("cpu", "gpu")]


def main() -> None:
    known = samples(SAMPLES)
    began = time.perf_counter()
    model = CostModel.fit(known)
    fit_s = time.perf_counter() - began
    unseen, again, pieces = [], [], []
    for seed in range(NETWORKS):
        graph = network(seed)
        legal = {operator.id: axes(operator, graph) for operator in graph.operators}
        for times in (unseen, again):
            began = time.perf_counter()
            found = candidates(graph, legal, model)
            times.append(time.perf_counter() - began)
        pieces.append(2 * sum(len(options) - 1 for options in found.values()))
    result = {
        "operators": OPERATORS,
        "pieces": {"median": median(pieces), "most": max(pieces)},
        "unseen_s": {"median": median(unseen), "worst": max(unseen), "n": len(unseen)},
        "again_s": {"median": median(again), "worst": max(again), "n": len(again)},
        "limit_s": 0.2,
        "fit": {"samples": len(known), "s": fit_s},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
