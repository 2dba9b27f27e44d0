# %% [markdown]
# # 4. Tuning
#
# A kernel has a configuration: tile sizes, vector widths, unrolling. Untuned ones come from records that tvm_codl ships, or from
# an estimate. `session.tune` tries configurations on the phone itself, with AutoTVM's tuners. [tune/](tune/README.md) has
# scripts that tune whole networks, and explains the lines that are printed.

# %%
from pathlib import Path

import altair as alt
import numpy as np

import tvm_codl as codl

MODEL = "zoo:small"
TRIALS = 4  # configurations of each kernel; 64 or more are worth their time for a network to keep
MINUTES = 0.4  # of tuning in all; the kernels that take longest come first
BUDGET_S = 2
OUT = Path("build/tutorials")
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Tune, then plan with the tuned kernels
#
# The winners go to `small.log`, all trials to `small.trials.log`, as they come: an interrupted tuning goes on from there. The
# session `with_tuning` uses these kernels. Measurements belong to kernels, so pieces are measured anew with it.

# %%
model = codl.load_model(MODEL)
network = codl.prepare(model)
records = OUT / f"{model.name}.log"
inputs = model.sample_inputs()
with codl.connect(log=print) as session:
    report = session.tune(network, records, trials=TRIALS, minutes=MINUTES)
    tuned = session.with_tuning(records)
    plan = tuned.plan(network, budget_s=BUDGET_S, check=False)
    outputs = tuned.open_plan(network, plan).run(inputs)

# %% [markdown]
# ## Before and after
#
# `estimate_ms` and `best_ms` were measured in turn. An estimate that no configuration beats by 3 % stays, as many do with so few
# trials.

# %%
print(f"{len(report.tuned)} kernels tuned now, {report.finished} before, {report.left} left")
for kernel in report.tuned:
    print(f"{kernel.processor} {kernel.task:28} {kernel.estimate_ms:.4f} ms, then {kernel.best_ms:.4f} ms")
wanted = model.reference(inputs)
error = max(np.abs(got - right).max() / np.abs(right).max() for got, right in zip(outputs, wanted, strict=True))
print(f"predicted with the tuned kernels: {plan.predicted_ms:.2f} ms; largest error against the reference: {error:.1e}")
assert error < 1e-3

# %%
bars = [
    {"kernel": f"{number} {kernel.processor} {kernel.task}", "time": when, "ms": ms}
    for number, kernel in enumerate(report.tuned, 1)
    for when, ms in (("estimate", kernel.estimate_ms), ("best of the trials", kernel.best_ms))
]
chart = (
    alt.Chart(alt.Data(values=bars), title="kernels before and after tuning", width=500)
    .mark_bar()
    .encode(x="ms:Q", y=alt.Y("kernel:N", sort=None, title=None), yOffset="time:N", color="time:N")
)
chart.save(OUT / "tuning.svg")
chart  # noqa: B018 - a notebook shows it

# %% [markdown]
# Next: [a phone over the proxy](05_a_phone_over_the_proxy.py).
