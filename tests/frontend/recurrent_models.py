"""A text recogniser with a recurrence: convolutions, one LSTM over the columns of the picture, and classes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Columns that the LSTM goes over; TVM unrolls it into as many steps.
STEPS = 20
#: Channels and stride (rows, columns) of each of the 21 convolutions, on a picture of 32 rows.
CONVOLUTIONS = (
    *[(16, (2, 2)), (16, (1, 1)), (24, (2, 2)), (24, (1, 1)), (24, (1, 1))],
    *[(40, (2, 1))] + [(40, (1, 1))] * 4,
    *[(64, (2, 1))] + [(64, (1, 1))] * 4,
    *[(96, (2, 1))] + [(96, (1, 1))] * 5,
)
HIDDEN, CLASSES = 48, 64


def text_recogniser(seed: int = 0) -> onnx.ModelProto:
    """1 x 3 x 32 x 80 pixels to 20 x 1 x 64 probabilities."""
    random = np.random.default_rng(seed)
    nodes, weights = [], []

    def constant(name: str, *shape: int) -> str:
        value = (random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype("float32")
        weights.append(numpy_helper.from_array(value, name))
        return name

    x, channels = "picture", 3
    for number, (wanted, strides) in enumerate(CONVOLUTIONS):
        kernel = constant(f"kernel_{number}", wanted, channels, 3, 3)
        made = f"conv_{number}"
        nodes.append(helper.make_node("Conv", [x, kernel], [made], pads=[1, 1, 1, 1], strides=list(strides)))
        if strides == (1, 1) and wanted == channels:
            nodes.append(helper.make_node("Add", [made, x], [f"sum_{number}"]))
            made = f"sum_{number}"
        x, channels = f"relu_{number}", wanted
        nodes.append(helper.make_node("Relu", [made], [x]))
    weights.append(numpy_helper.from_array(np.array([2], "int64"), "rows"))
    nodes += [
        helper.make_node("Squeeze", [x, "rows"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["steps"], perm=[2, 0, 1]),
        helper.make_node(
            "LSTM",
            ["steps", constant("w", 1, 4 * HIDDEN, channels), constant("r", 1, 4 * HIDDEN, HIDDEN)],
            ["states"],
            hidden_size=HIDDEN,
        ),
    ]
    weights.append(numpy_helper.from_array(np.array([1], "int64"), "directions"))
    nodes += [
        helper.make_node("Squeeze", ["states", "directions"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", constant("classes", HIDDEN, CLASSES)], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["letters"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "text_recogniser",
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, [1, 3, 32, 4 * STEPS])],
        [helper.make_tensor_value_info("letters", TensorProto.FLOAT, [STEPS, 1, CLASSES])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model
