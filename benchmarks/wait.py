"""What one wait of one processor for the other costs: a ping-pong of tiny operators, CPU, GPU, CPU, ...

Prints JSON: microseconds for one crossing (half of a round trip), median over samples, with the spread; the operators'
own times, measured alone in the same run, are taken off.  ``python benchmarks/wait.py [--sharing svm|mapped|copied]``
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from tvm_codl.runtime import opencl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--sharing", default="auto")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    half = max(1, len(cores) // 2)
    os.environ.setdefault("CODL_GPU_CORES", ",".join(map(str, cores[half:] or cores)))
    os.environ.update(opencl.environment(), TVM_NUM_THREADS="1", TVM_BIND_THREADS="0", TOPHUB_LOCATION="NONE")
    os.sched_setaffinity(0, cores[:half])
    import tvm

    from tvm_codl.build.library import build_dataflow
    from tvm_codl.measure.transfers import ping_pong
    from tvm_codl.runtime import plugin
    from tvm_codl.runtime.comodule import CoModule

    plugin.load()
    flow = ping_pong((1, 256), options.rounds)
    built = build_dataflow(flow, tvm.target.Target("llvm"), tvm.target.Target("opencl"))
    with tempfile.TemporaryDirectory() as folder:
        loaded = tvm.runtime.load_module(str(built.export(Path(folder) / "wait.so")))
        module = CoModule(loaded, tvm.cpu(0), sharing=options.sharing)
        zero = np.zeros((1, 256), "float32")
        right = float(module.run({"x": zero})[0][0, 0]) == 2.0 * options.rounds
        module.benchmark(1, 20)
        samples = np.array(module.benchmark(1, options.samples)) * 1e3
        alone = sum(float(np.median(module.time_region(i, 9))) for i in range(2 * options.rounds)) * 1e3
    crossing = np.maximum(samples - alone, 0.0) / (2 * options.rounds)
    median, p10, p90 = (round(float(np.percentile(crossing, q)), 2) for q in (50, 10, 90))
    print(
        json.dumps(
            {
                "wait_us": {"median": median, "p10": p10, "p90": p90, "n": len(samples)},
                "round_trip_us": round(float(np.median(samples)) / options.rounds, 2),
                "operators_us": round(alone / (2 * options.rounds), 2),
                "sharing": module.sharing,
                "right": right,
            }
        )
    )


if __name__ == "__main__":
    main()
