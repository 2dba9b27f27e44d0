# %% [markdown]
# # 1. A first plan
#
# A network goes from its file to a run on both processors of a phone: load, prepare, connect, plan, build, run. Nothing
# needs to be at hand: `codl.connect()` starts a reference phone on this machine, whose CPU and GPU are half of its cores each.

# %%
from pathlib import Path

import altair as alt
import numpy as np

import tvm_codl as codl

MODEL = "zoo:small"  # or the path of an ONNX or TFLite file
BUDGET_S = 5  # seconds of measuring pieces of operators; a plan to keep deserves more, the default is 20
CHECK = False  # True, the default, also runs the best plans on the phone and takes the fastest: the better, slower way
OUT = Path("build/tutorials")
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The network and its operators
#
# `load_model` imports the file. `prepare` simplifies the network and finds its operators: a convolution and the element-wise
# operators behind it are one. An operator can be cut along the axes that its split rule allows.

# %%
model = codl.load_model(MODEL)
network = codl.prepare(model)
for operator in network.graph.operators:
    axes = ", ".join(network.axes[operator.id]) or "nothing: it runs whole"
    print(f"{operator.id:2} {operator.name:20} {operator.flops / 1e6:6.2f} MFLOP, can be cut along {axes}")

# %% [markdown]
# ## Plan, build, run
#
# `plan` measures pieces of operators on the phone, where a measurement could change the plan. Measurements are kept, so a second
# call goes on from there. `build` writes one library for both processors. `log=print` shows what happens.

# %%
inputs = model.sample_inputs()
with codl.connect(log=print) as session:
    plan = session.plan(network, budget_s=BUDGET_S, check=CHECK)
    library = session.build(network, plan, OUT / f"{model.name}.so")
    module = session.open(library)
    outputs = module.run(inputs)
    timeline = module.timeline()
codl.dump_plan(plan, OUT / f"{model.name}.plan.json")

# %% [markdown]
# ## Is the answer right?
#
# `model.reference` is onnxruntime with the file itself, or LiteRT for a TFLite file. Floats are added in another order there, so
# the last digits differ.

# %%
wanted = model.reference(inputs)
error = max(np.abs(got - right).max() / np.abs(right).max() for got, right in zip(outputs, wanted, strict=True))
print(f"largest error against the reference: {error:.1e}")
assert error < 1e-3

# %% [markdown]
# ## Why is the plan as it is?
#
# Each line of a plan has the operator's time on either processor, and as it is placed, in ms, and the reason. `height@12` means
# that the CPU computes rows 0 to 11 and the GPU the others, and `height@12+2-0` that the CPU also computes 2 rows behind the cut.
# `tvm-codl plan MODEL --plan PLAN --explain` adds second choices, and `--what-if` what another placement would cost.


# %%
def words(placement: codl.Placement) -> str:
    over = f"+{placement.over[0]}-{placement.over[1]}" if any(placement.over) else ""
    return f"{placement.axis}@{placement.at}{over}" if placement.on == "split" else placement.on


for line in plan.operators:
    times = f"cpu {line.cpu_ms:.3f}, gpu {line.gpu_ms:.3f}, here {line.planned_ms:.3f}"
    print(f"{line.operator:2} {line.name:20} {words(line.placement):14} {times}: {line.reason}")
print(f"predicted: {plan.predicted_ms:.2f} ms")

# %% [markdown]
# ## A picture of one run
#
# The runtime's timeline has every kernel, wait and transfer of one run, on one clock.

# %%
events = [{**event, "label": event["name"].split("_fused_")[-1]} for event in timeline]
picture = (
    alt.Chart(alt.Data(values=events), title=f"{model.name}: one run on both processors", width=700, height=100)
    .mark_bar(stroke="white", strokeWidth=0.5)
    .encode(
        x=alt.X("start_us:Q", title="microseconds"),
        x2="end_us",
        y=alt.Y("processor:N", title=None),
        color=alt.Color("kind:N", title=None),
        tooltip=["label:N", "kind:N", "start_us:Q", "end_us:Q"],
    )
)
picture.save(OUT / f"{model.name}.svg")
picture  # noqa: B018 - a notebook shows it

# %% [markdown]
# `tvm-codl report zoo:small --plan build/tutorials/small.plan.json -o small.html` writes a page with this plan, each operator's
# costs and what if. Next: [your own model](02_your_model.py).
