"""``python -m tests.runtime.allocating LIBRARY COUNTER``: prints what creating a module and runs of it allocate."""

from __future__ import annotations

import ctypes
import json
import sys
import threading


def main() -> None:
    import numpy as np
    import tvm

    from tvm_codl.runtime import plugin
    from tvm_codl.runtime.comodule import CoModule

    plugin.load()
    counter = ctypes.CDLL(sys.argv[2])
    library = tvm.runtime.load_module(sys.argv[1])
    found = {}
    for sharing in ("svm", "mapped", "copied"):
        counter.count_allocations(1)
        module = CoModule(library, tvm.cpu(), sharing=sharing)
        created = counter.counted_allocations()
        module.run({"x": np.zeros((1, 6, 6, 4), "float32")})
        run = module._executor["run"]  # looking a function up allocates; running it must not
        run()
        counter.count_allocations(1)
        # An adaptive library tries and changes plans among these.
        for _ in range(50 if not module.about.plans else 500):
            run()
        counter.count_allocations(0)
        runs = counter.counted_allocations()
        if module.about.plans:
            found[sharing] = {"created": created, "runs": runs, "trials": module.adaptation.trials}
            continue
        # What a call allocates (its arguments, its answer) must not grow with the runs that it times.  The least of
        # some calls, for the driver's own threads allocate when they like.
        busy = module._executor["time_region_busy"]
        allocated = []
        for least_ms in (0.01, 2.0):
            threading.Thread(target=threading.Event().wait, daemon=True).start()  # as a driver starts one
            busy(0, 1, 1, least_ms)
            calls = []
            for _ in range(5):
                counter.count_allocations(1)
                busy(0, 1, 1, least_ms)
                counter.count_allocations(0)
                calls.append(counter.counted_allocations())
            allocated.append(min(calls))
        found[sharing] = {"created": created, "runs": runs, "longer timing": max(allocated[1] - allocated[0], 0)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
