# %% [markdown]
# # 7. Add a split rule
#
# An operator without a split rule runs whole, on one processor. `repeat` has none: it repeats each row of a tensor, as an
# upsampling does. This tutorial gives it one. [CONTRIBUTING.md](../CONTRIBUTING.md#add-a-split-rule) says what a rule is asked and
# answers, and how to add one to tvm_codl for good, with its tests.

# %%
from pathlib import Path

import altair as alt
import numpy as np
import tvm
from tvm import relay

import tvm_codl as codl
from tvm_codl.graph.rule import MOVING, Answer, Case, at_multiples, axis_of, rule
from tvm_codl.graph.slab import Slab
from tvm_codl.plan.plan import PlannedOperator

OUT = Path("build/tutorials")
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## A network with this operator
#
# A convolution, its result twice as high and wide, and another convolution.

# %%
random = np.random.default_rng(0)
weights = {name: random.standard_normal((3, 3, 16, 16)).astype("float32") for name in ("first", "second")}
layout = {"data_layout": "NHWC", "kernel_layout": "HWIO", "kernel_size": (3, 3), "padding": (1, 1)}
x = relay.var("x", shape=(1, 32, 32, 16))
first, second = (relay.var(name, shape=weight.shape) for name, weight in weights.items())
features = relay.nn.relu(relay.nn.conv2d(x, first, **layout))
large = relay.repeat(relay.repeat(features, 2, axis=1), 2, axis=2)
mod = tvm.IRModule.from_expr(relay.Function([x, first, second], relay.nn.conv2d(large, second, **layout)))
model = codl.from_relay(mod, weights, name="upsample")


def show(network: codl.Prepared) -> None:
    for operator in network.graph.operators:
        axes = ", ".join(network.axes[operator.id]) or "nothing"
        print(f"{operator.name}: {[node.op for node in operator.body]} can be cut along {axes}")


show(codl.prepare(model))

# %% [markdown]
# ## The rule
#
# It is asked for a part of the result, and answers which part of the argument makes it. Along the repeated axis, rows `lo` to `hi`
# of the result come from rows `lo / times` to `hi / times`. A cut between two copies of one row is refused: `at_multiples`
# says that multiples of `times` can be cut. Along any other axis the part is the same.


# %%
@rule("repeat", weight=MOVING)
def repeat(case: Case, want: Slab) -> Answer:
    times = case.attrs["repeats"]
    if axis_of(case.attrs["axis"], len(case.result)) != want.axis:
        return Answer((want,))
    at_multiples(want, times, f"each value is there {times} times")
    return Answer((Slab(want.axis, want.lo // times, want.hi // times),))


network = codl.prepare(model)
show(network)

# %% [markdown]
# ## What each part reads
#
# The rule alone, asked for both parts of a cut at row 24 of 64: together they read the 32 rows of the argument, and
# none twice.

# %%
case = Case("repeat", {"repeats": 2, "axis": 1}, ((1, 32, 32, 16),), (1, 64, 32, 16))
rows = []
for on, part in (("cpu", Slab(1, 0, 24)), ("gpu", Slab(1, 24, 64))):
    (need,) = repeat(case, part).args
    rows += [{"on": on, "rows of": "result", "from": part.lo, "to": part.hi}]
    rows += [{"on": on, "rows of": "argument", "from": need.lo, "to": need.hi}]
chart = (
    alt.Chart(alt.Data(values=rows), title="a part of the result, and what it reads", width=500, height=100)
    .mark_bar(stroke="white")
    .encode(x=alt.X("from:Q", title="row"), x2="to", y=alt.Y("rows of:N", sort=["result", "argument"]), color="on:N")
)
chart.save(OUT / "split_rule.svg")
chart  # noqa: B018 - a notebook shows it

# %% [markdown]
# ## The split answer is the whole one
#
# Two plans by hand differ in this operator alone. It only moves values, so the answers must be equal to the last bit.


# %%
def plan_with(placement: codl.Placement) -> codl.Plan:
    lines = [
        PlannedOperator(operator.id, operator.name, placement if operator.kind == "repeat" else codl.Placement("cpu"))
        for operator in network.graph.operators
    ]
    return codl.Plan(network.name, "by hand", tuple(lines))


inputs = model.sample_inputs()
with codl.connect(log=print) as session:
    (whole,) = session.open_plan(network, plan_with(codl.Placement("cpu"))).run(inputs)
    (split,) = session.open_plan(network, plan_with(codl.Placement("split", "height", 24))).run(inputs)
(wanted,) = model.reference(inputs)
print("split and whole are equal:", np.array_equal(split, whole))
print(f"largest error against the reference: {np.abs(split - wanted).max() / np.abs(wanted).max():.1e}")
assert np.array_equal(split, whole)
