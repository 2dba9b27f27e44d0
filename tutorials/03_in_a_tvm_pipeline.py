# %% [markdown]
# # 3. Inside a TVM pipeline
#
# tvm_codl's passes are ordinary Relay passes. This tutorial takes one of Relay's own networks through each of them by hand, to a
# library that `ndk.create_shared` links. [relay/by_hand.py](relay/README.md) does the same as a command, also for a module of
# one's own and for PyTorch's.

# %%
import os
from pathlib import Path

import altair as alt
import msgspec
import numpy as np
import tvm
from tvm import relay
from tvm.contrib import ndk
from tvm.relay import testing

import tvm_codl as codl
from tvm_codl.build.library import build

PHONE = None  # a reference phone on this machine; codl.Tracker("127.0.0.1", 9190, "pixel") is one at a tracker
BUDGET_S = 5
OUT = Path("build/tutorials")
OUT.mkdir(parents=True, exist_ok=True)
# The compiler that links: here this machine's; for a phone the NDK's, …/aarch64-linux-android24-clang++.
os.environ.setdefault("TVM_NDK_CC", "g++")

# %% [markdown]
# ## A module of Relay, simplified
#
# The network is in NCHW, with batch normalisation and softmax as they are written. Its weights become constants. `SIMPLIFY`
# folds batch normalisation into the weights, and `NHWC` changes the layout. Both are tuples of passes.

# %%
mod, params = testing.resnet.get_workload(num_layers=8, num_classes=10, image_shape=(3, 28, 28))
bound = tvm.IRModule.from_expr(relay.build_module.bind_params_by_name(mod["main"], params))
with tvm.transform.PassContext(opt_level=3, config=codl.pipeline.CONFIG):
    simple = tvm.transform.Sequential([*codl.pipeline.SIMPLIFY, *codl.pipeline.NHWC])(bound)
    graph, _, prepared = codl.extract(simple)
print([operator.name for operator in graph.operators])

# %% [markdown]
# ## A plan for it
#
# `extract` gave the operators, and the fused module that they were read from. `codl.from_relay` takes the module as it was
# given; it also knows the right answers, which TVM's own executor computes. Both have the same operators.

# %%
model = codl.from_relay(mod, params, name="resnet8")
network = codl.prepare(model)
assert [operator.body for operator in network.graph.operators] == [operator.body for operator in graph.operators]
with codl.connect(PHONE, log=print) as session:
    plan = session.plan(network, budget_s=BUDGET_S, check=False)

# %% [markdown]
# ## Partition
#
# `AnnotateCoExecution` writes each operator's placement into its function's attributes. `PartitionCoExecution` makes functions
# `@codl_cpu_K` and `@codl_gpu_K` of these, with slices and concatenations between them in `@main`. The result is ordinary Relay, and
# both compose with any other pass.

# %%
passes = [codl.AnnotateCoExecution(plan), codl.PartitionCoExecution(), relay.transform.InferType()]
with tvm.transform.PassContext(opt_level=3, config=codl.pipeline.CONFIG):
    partitioned = tvm.transform.Sequential(passes)(prepared)
functions = sorted(str(variable.name_hint) for variable in partitioned.get_global_vars())
print(functions)

# %% [markdown]
# ## Build, link, run
#
# `build` compiles both processors' code with the kernels of the session. The library has everything in it: code, weights and the
# plan.

# %%
path, inputs = OUT / "resnet8.so", model.sample_inputs()
with codl.connect(PHONE) as session:
    with session.tools.scheduled():
        library = build(partitioned, session.tools.cpu, session.tools.gpu, msgspec.to_builtins(plan), model.outputs)
    library.module.export_library(str(path), fcompile=ndk.create_shared)
    found = session.open(path).run(inputs)
wanted = model.reference(inputs)
error = max(np.abs(got - right).max() / np.abs(right).max() for got, right in zip(found, wanted, strict=True))
print(f"largest error against TVM's executor: {error:.1e}")
assert error < 1e-3

# %% [markdown]
# ## The predicted time of each operator

# %%
shares = [
    {"operator": f"{line.operator} {line.name}", "processor": on, "ms": ms}
    for line in plan.operators
    for on, ms in (("cpu", line.cpu_ms), ("gpu", line.gpu_ms), ("as planned", line.planned_ms))
]
chart = (
    alt.Chart(alt.Data(values=shares), title="predicted time of each operator", width=500)
    .mark_bar()
    .encode(x=alt.X("ms:Q"), y=alt.Y("operator:N", sort=None), yOffset="processor:N", color="processor:N")
)
chart.save(OUT / "resnet8.svg")
chart  # noqa: B018 - a notebook shows it

# %% [markdown]
# Next: [tuning](04_tuning.py).
