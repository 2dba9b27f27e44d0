# %% [markdown]
# # 2. Your model
#
# An ONNX or a TFLite file goes in by its path. This tutorial writes a small ONNX network, loads it, checks the import, and shows
# what a refusal looks like. It needs no phone.

# %%
from pathlib import Path

import altair as alt
import numpy as np
import onnx
from onnx import helper, numpy_helper

import tvm_codl as codl
from tvm_codl.errors import UserError
from tvm_codl.measure.checked_import import check_import

OUT = Path("build/tutorials")
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Write an ONNX file
#
# A convolution, a ReLU and a mean over the picture. The picture's size is open in the file: `height` and `width` are names.

# %%
FLOAT = onnx.TensorProto.FLOAT
random = np.random.default_rng(0)
weights = numpy_helper.from_array(random.standard_normal((16, 3, 3, 3)).astype("float32"), "weights")
picture = helper.make_tensor_value_info("picture", FLOAT, [1, 3, "height", "width"])


def write(name: str, nodes: list[onnx.NodeProto], output: onnx.ValueInfoProto) -> str:
    graph = helper.make_graph(nodes, name, [picture], [output], [weights])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(proto, OUT / f"{name}.onnx")
    return str(OUT / f"{name}.onnx")


convolve = helper.make_node("Conv", ["picture", "weights"], ["sums"], pads=[1, 1, 1, 1])
relu = helper.make_node("Relu", ["sums"], ["features"])
mean = helper.make_node("GlobalAveragePool", ["features"], ["means"])
mine = write("mine", [convolve, relu, mean], helper.make_tensor_value_info("means", FLOAT, [1, 16, 1, 1]))

# %% [markdown]
# ## Fix its shapes
#
# Kernels are built for one size, so an open one must be given. Without it the file is refused. Every error of tvm_codl says
# what failed, the evidence, and what to do next.

# %%
try:
    codl.load_model(mine)
except UserError as refusal:
    print(refusal)
model = codl.load_model(mine, {"picture": (1, 3, 64, 64)})
network = codl.prepare(model)
print("inputs:", model.inputs, "outputs:", model.outputs)
print("operators:", [operator.name for operator in network.graph.operators])

# %% [markdown]
# ## Check the import
#
# Every command checks a model before anything is measured: it compares the imported network, run on this computer, with the
# reference's answer to the file. From Python it is one call. It raises `CheckFailed` with the first node that differs. What
# was right is remembered by the file's content, so a second call is silent.

# %%
check_import(model, log=print)
print("the import of", model.name, "is right")

# %% [markdown]
# ## An operator that is refused
#
# `Unique` makes a tensor whose size is known only as the network runs. `tvm-codl check --list` prints what is supported.

# %%
unique = helper.make_node("Unique", ["sums"], ["values"])
refused = write("unique", [convolve, unique], helper.make_tensor_value_info("values", FLOAT, ["count"]))
try:
    codl.load_model(refused, {"picture": (1, 3, 64, 64)})
except UserError as refusal:
    print(refusal)

# %% [markdown]
# ## A TFLite file
#
# It is loaded the same way, and compared with LiteRT. This one is of the package `mediapipe`; a refusal says how to install it.

# %%
models = [model]
try:
    path = codl.load_model("zoo:face_detection").path
    models.append(codl.load_model(str(path)))
    print(path.name, models[-1].inputs)
except UserError as refusal:
    print(refusal)

# %% [markdown]
# ## Where the work is: each operator, in the order in which they run

# %%
rows = [
    {"model": each.name, "number": operator.id, "kind": operator.kind, "MFLOP": operator.flops / 1e6}
    for each in models
    for operator in codl.prepare(each).graph.operators
]
chart = (
    alt.Chart(alt.Data(values=rows), width=600, height=150)
    .mark_bar()
    .encode(x=alt.X("number:O", title="operator"), y="MFLOP:Q", color="kind:N", row=alt.Row("model:N", title=None))
    .resolve_scale(x="independent", y="independent")
)
chart.save(OUT / "work.svg")
chart  # noqa: B018 - a notebook shows it

# %% [markdown]
# Next: [inside a TVM pipeline](03_in_a_tvm_pipeline.py).
