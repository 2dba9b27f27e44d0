"""``python -m tests.runtime.building COUNTER LIBRARY...``: prints how many programs are built once each library is loaded,
with which options the last was, and how far the answers of them all are from one another in the end, when the first is freed.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys


def main() -> None:
    import numpy as np
    import tvm

    from tvm_codl.runtime import plugin
    from tvm_codl.runtime.comodule import CoModule

    plugin.load()
    counter = ctypes.CDLL(sys.argv[1])
    sample = np.random.default_rng(1).standard_normal((1, 12, 12, 16)).astype("float32")
    modules, builds = [], []
    for path in sys.argv[2:]:
        modules.append(CoModule(tvm.runtime.load_module(path), tvm.cpu()))
        builds.append(counter.counted_builds())
    first = modules.pop(0).run({"x": sample})[0]
    gc.collect()
    errors = [float(np.abs(module.run({"x": sample})[0] - first).max()) for module in modules]
    counter.options_of_build.restype = ctypes.c_char_p
    print(json.dumps({"builds": builds, "options": counter.options_of_build().decode(), "errors": errors}))


if __name__ == "__main__":
    main()
