"""tvm_codl runs every operator of a neural network on a phone's CPU and GPU at the same time.

The public names; each is imported when it is first used, so that what needs no TVM works without one::

    import tvm_codl as codl

    model = codl.load_model("zoo:resnet18")
    with codl.connect() as phone:
        prepared = codl.prepare(model)
        plan = codl.make_plan(prepared, phone, budget_s=60)
        library = codl.build_library(prepared, plan, phone.profile, Path("resnet18.so"))
        outputs = codl.open_library(library, phone).run(model.sample_inputs())
"""

from __future__ import annotations

import importlib
import os
from typing import Any

# The client itself computes next to nothing, and builds in forked processes, which a thread pool does not survive.
os.environ.setdefault("TVM_NUM_THREADS", "1")

_NAMES = {
    "load_model": "frontend.load",
    "LoadedModel": "relay.model",
    "connect": "device.connect",
    "connect_fleet": "measure.phone_pool",
    "Phone": "device.connect",
    "Proxy": "device.spec",
    "Tracker": "device.spec",
    "DeviceProfile": "device.profile",
    "prepare": "relay.pipeline",
    "make_plan": "measure.workflow",
    "make_adaptive": "measure.workflow",
    "tune": "measure.tuning",
    "measure_network": "measure.workflow",
    "compare": "measure.bench",
    "rank_models": "measure.ranking",
    "build_library": "measure.workflow",
    "open_library": "measure.workflow",
    "CoModule": "runtime.comodule",
    "Plan": "plan.plan",
    "Placement": "plan.plan",
    "load_plan": "plan.files",
    "dump_plan": "plan.files",
    "verify_plan": "plan.verify",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
