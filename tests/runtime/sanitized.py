"""Runs a library as a user would, for a sanitizer to watch: ``python -m tests.runtime.sanitized LIBRARY ADAPTIVE``.

The library is built beforehand, by a process that no sanitizer slows down.  The plugin that ``TVM_CODL_PLUGIN`` names is an instrumented build; the test that starts this gives the environment.
"""

from __future__ import annotations

import json
import os
import sys
import threading


def main() -> None:
    import numpy as np
    import tvm

    from tvm_codl.errors import DeviceError
    from tvm_codl.records.settings import Settings
    from tvm_codl.runtime import plugin
    from tvm_codl.runtime.comodule import CoModule

    plugin.load()
    value = np.random.default_rng(0).standard_normal((1, 6, 6, 4)).astype("float32")
    library = tvm.runtime.load_module(sys.argv[1])
    processors = [r["processor"] for r in json.loads(library["program"]())["regions"]]
    core = min(os.sched_getaffinity(0))
    results = []
    for sharing in ("svm", "mapped", "copied"):
        module = CoModule(library, tvm.cpu(), sharing=sharing)
        for _ in range(20):
            results.append(module.run({"x": value})[0])
        module.timeline()
        for settings in (Settings(1), Settings(3), Settings(cpu_cores=(core,)), Settings(7, 1, (core,)), Settings()):
            module.apply(settings)
            results.append(module.run()[0])
            assert module.cpu_cores == [[core]] or not settings.cpu_cores
        for region, processor in enumerate(processors):
            module.time_region(region, 2, 0.1)
            module.time_region(region, 1, 0.0)
            module.time_region_busy(region, None, 2, 0.1)
            try:
                module.time_region_busy(region, processors.index("gpu" if processor == "cpu" else "cpu"), 2, 0.1)
            except DeviceError as error:
                # A CPU that is slowed down so much outlasts whatever the GPU's queue holds; that is no data race.
                assert "too short to keep" in str(error), error
    adaptive = tvm.runtime.load_module(sys.argv[2])
    for sharing in ("svm", "mapped", "copied"):
        module = CoModule(adaptive, tvm.cpu(), sharing=sharing)
        module.set_inputs({"x": value})
        for number in (*range(len(module.about.plans)), None):
            module.fix_plan(number)
            results.append(module.run()[0])
            module.benchmark(100, 1)
            results.append(module.run()[0])
            module.timeline()
        assert module.adaptation.runs == 102
    assert all(np.allclose(r, results[0], rtol=1e-4, atol=1e-5) for r in results)

    def work() -> None:
        mine = CoModule(library, tvm.cpu())
        mine.set_inputs({"x": value})
        mine.apply(Settings(2, 1, (core,)))
        mine.benchmark(10, 2)
        choosing = CoModule(adaptive, tvm.cpu())
        choosing.set_inputs({"x": value})
        choosing.benchmark(50, 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    choice = tvm.get_global_func("codl.create_choice")("calm", "cpu busy", "gpu throttled")
    random = np.random.default_rng(0)
    plan = 0
    for run in range(3000):
        slow = (2.0, 1.0, 1.5)[plan] if run % 700 > 300 else (1.0, 1.5, 1.5)[plan]
        ms = slow * float(random.lognormal(0.0, 0.2))
        plan = int(choice["note"](ms, 0.5 * ms))
        choice["adaptation"]()
    for junk in ("", "{}", '{"format":2}', '{"format":2,"plans":[{}]}', '{"plans":[1]}'):
        try:
            tvm.get_global_func("codl.create_library")(junk, "{}", 0)
        except Exception:
            continue
        raise AssertionError("junk was taken for a program")
    print("SANITIZED RUN DONE", flush=True)
    # A sanitizer's runtime and LLVM's destructors do not get along at exit; what matters has run.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
