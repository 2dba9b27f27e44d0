"""Runs a built library on a machine that has only TVM's runtime and the native plugin, and compares its answers.

``python benchmarks/check_library.py PLUGIN LIBRARY CASE [--sharing auto|svm|mapped|copied]``; CASE is an ``.npz`` with
``input_NAME`` and ``output_I`` arrays, the outputs as the unsplit network gives them.  Prints JSON: the device, how
memory is shared, errors, times in ms and the bytes that one run copies.  Exit code 4 where an answer is wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import sys
from statistics import median
from typing import Any

TOLERANCE = 1e-3


def check(module: Any, executor: Any, case: Any) -> float:
    """The largest error over all outputs, relative to the output's largest magnitude."""
    import numpy as np
    import tvm

    about = json.loads(module["about"]())
    for index, port in enumerate(about["inputs"]):
        executor["set_input"](index, tvm.nd.array(case[f"input_{port['name']}"]))
    executor["run"]()
    executor["run"]()
    worst = 0.0
    for index, port in enumerate(about["outputs"]):
        order = port["order"] or list(range(len(port["shape"])))
        stored = tvm.nd.empty(tuple(port["shape"][a] for a in order), port["dtype"])
        executor["get_output"](index, stored)
        value = np.transpose(stored.numpy(), np.argsort(order))
        if port["crop"]:
            axis, lo, hi = port["crop"]
            value = np.take(value, np.arange(lo, hi), axis=axis)
        wanted = case[f"output_{index}"]
        if value.shape != wanted.shape or not np.isfinite(value).all():
            return math.inf
        worst = max(worst, float(np.abs(value - wanted).max() / max(np.abs(wanted).max(), 1e-12)))
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plugin")
    parser.add_argument("library")
    parser.add_argument("case")
    parser.add_argument("--sharing", default="auto")
    options = parser.parse_args()
    os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")
    import numpy as np
    import tvm

    ctypes.CDLL(options.plugin, ctypes.RTLD_GLOBAL)
    module = tvm.runtime.load_module(options.library)
    executor = module["create"](0, options.sharing)
    error = check(module, executor, np.load(options.case))
    times = json.loads(executor["benchmark"](1, 20))
    spans = json.loads(executor["timeline"]())
    regions = {
        side: len({s["region"] for s in spans if s["processor"] == side and s["region"]}) for side in ("cpu", "gpu")
    }
    device = tvm.device("opencl", 0)
    print(
        json.dumps(
            {
                "library": os.path.basename(options.library),
                "device": str(device.device_name),
                "sharing": str(executor["sharing"]()),
                "regions": regions,
                "max_rel_err": error,
                "copied_bytes": int(executor["copied_bytes"]()),
                "ms": {"median": median(times), "min": min(times), "n": len(times)},
            }
        )
    )
    return 0 if error <= TOLERANCE else 4


if __name__ == "__main__":
    sys.exit(main())
