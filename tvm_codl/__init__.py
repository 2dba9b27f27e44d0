"""tvm_codl runs every operator of a neural network on a phone's CPU and GPU at the same time.

The public names; each is imported when it is first used, so that what needs no TVM works without one::

    import tvm_codl as codl

    network = codl.prepare(codl.load_model("zoo:resnet18"))
    with codl.connect() as session:
        plan = session.plan(network, budget_s=60)
        library = session.build(network, plan, Path("resnet18.so"))
        outputs = session.open(library).run(network.model.sample_inputs())
"""

from __future__ import annotations

import importlib
import os
from typing import Any

# The client itself computes next to nothing, and builds in forked processes, which a thread pool does not survive.
os.environ.setdefault("TVM_NUM_THREADS", "1")
# Else TVM tries to download tuned schedules for each build.
os.environ.setdefault("TOPHUB_LOCATION", "NONE")
# Else onnxruntime numbers this computer in the home folder, and reports its use to its makers.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_NAMES = {
    "connect": "api",
    "Session": "api",
    "load_model": "frontend.load",
    "from_relay": "frontend.relay_module",
    "LoadedModel": "relay.model",
    "prepare": "relay.pipeline",
    "Prepared": "relay.prepared",
    "pipeline": "relay.pipeline",
    "extract": "relay.pipeline",
    "AnnotateCoExecution": "relay.annotate",
    "PartitionCoExecution": "relay.partition",
    "Phone": "device.connect",
    "Proxy": "device.spec",
    "Tracker": "device.spec",
    "DeviceProfile": "device.profile",
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
    module = importlib.import_module(f"{__name__}.{_NAMES[name]}")
    return module if module.__name__.endswith(f".{name}") else getattr(module, name)
