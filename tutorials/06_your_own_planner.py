# %% [markdown]
# # 6. A planner of your own
#
# A planner is a function from a `Problem` to a `Plan`. `tvm_codl/plan/baselines` has four that follow other people's work; this
# tutorial writes a fifth. It compares all of them with tvm_codl's search by predicted times, and the new one also on the phone.

# %%
from pathlib import Path
from statistics import median

import altair as alt
from tvm.relay import testing

import tvm_codl as codl
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.interleave import race, start
from tvm_codl.measure.learning import learn
from tvm_codl.measure.plan_libraries import open_plans
from tvm_codl.plan.baselines.planners import PLANNERS
from tvm_codl.plan.problem import Problem

BUDGET_S = 5
RACED = ("cpu", "gpu", "by_speed", "tvm_codl")  # whose plans are built and run
ROUNDS = 5
OUT = Path("build/tutorials")
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Split everything by speed
#
# Where the CPU takes 3 ms for an operator and the GPU 1 ms, the CPU gets a quarter of it. `problem.whole` has both times,
# `problem.axes` the axes along which an operator can be cut, and the cuts are multiples of an axis's granule. An operator
# without an axis goes to its faster processor. `problem.place` turns placements into a plan with its predicted time, transfers
# and waits included.


# %%
def by_speed(problem: Problem) -> codl.Plan:
    placements = []
    for operator in problem.graph.operators:
        cpu, gpu = problem.whole(operator.id)
        placement = min(cpu, gpu, key=lambda candidate: candidate.ms).placement
        share = gpu.ms / (cpu.ms + gpu.ms)
        for axis in problem.axes[operator.id].values():
            at = round(share * axis.extent / axis.granule) * axis.granule
            if 0 < at < axis.extent:
                placement = codl.Placement("split", axis.name, at)
                break
        placements.append(placement)
    return problem.place(placements, "split by speed")


# %% [markdown]
# ## Plans of the same costs
#
# `learn` measures as `session.plan` does, and gives the problem with what it learned. `problem.search` is tvm_codl's own search.

# %%
mod, params = testing.resnet.get_workload(num_layers=8, num_classes=10, image_shape=(3, 28, 28), batch_size=8)
model = codl.from_relay(mod, params, name="resnet8x8")
network = codl.prepare(model)
with codl.connect(log=print) as session:
    _, problem = learn(network, session, Budget(seconds=BUDGET_S))
    planners = {**PLANNERS, "by_speed": by_speed, "tvm_codl": Problem.search}
    plans = {**problem.single_processor_plans(), **{name: planner(problem) for name, planner in planners.items()}}
    for plan in plans.values():
        codl.verify_plan(plan, network.graph, network.axes)

    # Each takes its turn in every round, so that what else happens on the phone meets all alike.
    modules = open_plans(network, {name: plans[name] for name in RACED}, session)
    start(modules, model.sample_inputs())
    racing = race(modules)
    measured = {name: median(samples) for name, samples in racing.run(ROUNDS).items()}
print(racing.words or "nothing disturbed the race")

# %% [markdown]
# ## The comparison
#
# `session.plan` goes further than `problem.search`: it runs the best plans, some of these planners' among them, and keeps the
# fastest. `benchmarks/planners.py` is this comparison for the whole zoo.

# %%
for name, plan in plans.items():
    splits = sum(placement.on == "split" for placement in plan.placements)
    ran = f", measured {measured[name]:.3f} ms" if name in measured else ""
    print(f"{name:14} predicted {plan.predicted_ms:.3f} ms{ran}, {splits} operators split")
bars = [
    {"planner": name, "time": what, "ms": ms}
    for name, plan in plans.items()
    for what, ms in (("predicted", plan.predicted_ms), ("measured", measured.get(name)))
]
chart = (
    alt.Chart(alt.Data(values=bars), title=f"{model.name}: each planner's plan", width=500)
    .mark_bar()
    .encode(x="ms:Q", y=alt.Y("planner:N", sort=None, title=None), yOffset="time:N", color="time:N")
)
chart.save(OUT / "planners.svg")
chart  # noqa: B018 - a notebook shows it

# %% [markdown]
# Next: [add a split rule](07_split_rule.py).
