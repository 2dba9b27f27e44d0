"""How long it takes to plan random networks, and how near the plans are to the bound.

    python benchmarks/planning_random.py [--records STORE] [--graphs 10] [--seed 0] [NAME ...]

The operators are those of the zoo's networks NAME that keep their input's shape, with one input or two; their order is drawn
anew, in five forms: any operator reads any earlier tensor, recurrences whose steps read one tensor, dense blocks in which each
operator reads the sum of all before it, one tensor that 100 operators read, and grids.  Of each form there are ``--graphs`` of
8 to 500 operators, and one of 2,000; dense blocks, recurrences and grids end with a whole step.

Prints JSON: for each form the longest time of ``planning.py``'s two parts together, on one core and with nothing known of the
network, and the largest gap between a plan's sum of costs and the bound.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.planning import CORES, cost_model, planned
from benchmarks.random_networks import FORMS, Wiring
from tvm_codl.frontend.load import load_model
from tvm_codl.graph.opgraph import Operator, Shape
from tvm_codl.relay.pipeline import prepare

NETWORKS = ("resnet18", "resnet50_v2", "mobilenet_v2", "ppocr_det", "posenet", "yolov2")
SIZES, LARGE = (8, 500), 2000


def templates(names: Sequence[str]) -> dict[Shape, tuple[list[Operator], list[Operator]]]:
    """By shape, the networks' operators that make one tensor of it, of one tensor of it or two."""
    found: dict[Shape, tuple[list[Operator], list[Operator]]] = defaultdict(lambda: ([], []))
    for name in names:
        graph = prepare(load_model(f"zoo:{name}")).graph
        for operator in graph.operators:
            shapes = {graph.tensors[tensor].shape for tensor in (*operator.inputs, *operator.outputs)}
            if len(shapes) == len(operator.outputs) == 1 and len(operator.inputs) in (1, 2):
                found[shapes.pop()][len(operator.inputs) - 1].append(operator)
    return {shape: both for shape, both in found.items() if all(both)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NETWORKS)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--graphs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    model, known = cost_model(given.records), templates(given.names)
    chance, result = random.Random(given.seed), dict[str, Any]()
    for form, grow in FORMS.items():
        rows = []
        for count in [*(chance.randint(*SIZES) for _ in range(given.graphs)), LARGE]:
            shape = chance.choice(sorted(known))
            net = Wiring(shape, *known[shape], chance)
            grow(net, count)
            print(f"{form}, {len(net.operators)} operators of shape {shape}", file=sys.stderr)
            rows.append({"shape": shape, **planned(net.graph(), model, 1)})
        small = [row for row in rows if row["operators"] < LARGE]
        result[form] = {
            "slowest_s": max(row["first_s"] for row in small),
            "slowest_2000_s": max(row["first_s"] for row in rows if row["operators"] >= LARGE),
            "largest_gap": max(row["gap"] for row in rows),
            "exact": sum(row["exact"] for row in rows),
            "graphs": rows,
        }
    print(json.dumps({"forms": result, "shapes": sorted(known), "cores": CORES}, indent=2))


if __name__ == "__main__":
    main()
