"""Uses of single ONNX operators that are refused: what TVM computes otherwise than ONNX says, or cannot compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from tvm_codl.frontend.onnx_fold import Constants
from tvm_codl.frontend.onnx_types import Types, attributes_of, element_type, shape_of


@dataclass(frozen=True)
class Refusal:
    """``of`` says for the support table which uses are refused; ``why`` gives the reason for one node, empty where it can
    run."""

    of: str
    why: Callable[[onnx.NodeProto, Types, Constants], str]
    always: bool = False


def _always(words: str) -> Refusal:
    return Refusal(words, lambda node, types, constants: words, always=True)


def ceil_mode(node: onnx.NodeProto, types: Types, constants: Constants) -> str:
    """ONNX drops windows that start behind the input."""
    attributes, shape = attributes_of(node), shape_of(node.input[0], types)
    if not attributes.get("ceil_mode"):
        return ""
    if shape is None:
        return "ceil_mode, and its input's shape is not known"
    if node.op_type == "AveragePool" and attributes.get("count_include_pad"):
        return "ceil_mode with count_include_pad: TVM counts what lies behind the padding"
    window = attributes["kernel_shape"]
    count = len(window)
    strides, dilations = attributes.get("strides", [1] * count), attributes.get("dilations", [1] * count)
    pads = attributes.get("pads", [0] * (2 * count))
    for i, extent in enumerate(shape[2:]):
        last = -(-(extent + pads[i] + pads[i + count] - dilations[i] * (window[i] - 1) - 1) // strides[i])
        if last * strides[i] >= extent + pads[i]:
            return "ceil_mode, and a window starts behind the input"
    return ""


def _max_pool(node: onnx.NodeProto, types: Types, constants: Constants) -> str:
    if len(node.output) > 1 and node.output[1]:
        return "it gives the places of the maxima too"
    return ceil_mode(node, types, constants)


def _max_unpool(node: onnx.NodeProto, types: Types, constants: Constants) -> str:
    given = len(node.input) > 2 and node.input[2]
    return "output_shape: TVM takes its places for those in the larger output" if given else ""


def _quantised(node: onnx.NodeProto, types: Types, constants: Constants) -> str:
    if attributes_of(node).get("block_size"):
        return "block_size"
    half = element_type(node.input[1], types) == TensorProto.FLOAT16
    return "a scale of float16: TVM takes float32 alone" if half else ""


def _roi_align(node: onnx.NodeProto, types: Types, constants: Constants) -> str:
    attributes = attributes_of(node)
    if attributes.get("mode") == b"max":
        return "mode max: ONNX takes the largest weighted corner, TVM the largest interpolated value"
    if attributes.get("coordinate_transformation_mode", b"half_pixel") != b"output_half_pixel":
        return "TVM does not move coordinates by half a pixel"
    return ""


def drops_at_random(node: onnx.NodeProto, types: Types, constants: Constants) -> str:
    """A Dropout in training drops at random, unless its ratio is 0."""
    training = constants.get(node.input[2]) if len(node.input) > 2 and node.input[2] else np.array(False)
    ratio = constants.get(node.input[1]) if len(node.input) > 1 and node.input[1] else np.array(0.5)
    idle = (training is not None and not training.any()) or (ratio is not None and not ratio.any())
    return "" if idle else "training_mode: what it drops is random"


def _training(node: onnx.NodeProto, types: Types, constants: Constants) -> str:
    return "training_mode: TVM normalises by the stored mean" if attributes_of(node).get("training_mode") else ""


def _dft(node: onnx.NodeProto, types: Types, constants: Constants) -> str:
    """Since operator set 20 the axis is an input, and the last but one where there is none."""
    shape = shape_of(node.input[0], types)
    if len(node.input) > 2 or shape is None or (len(shape) != 3 and "axis" not in attributes_of(node)):
        return "TVM would transform along axis 1"
    return ""


def _reduce(node: onnx.NodeProto, types: Types, constants: Constants) -> str:
    computed = len(node.input) > 1 and node.input[1] and node.input[1] not in constants
    return f"its axes {node.input[1]!r} are computed" if computed else ""


def _resize(node: onnx.NodeProto, types: Types, constants: Constants) -> str:
    """TVM keeps the output's size, and takes the ratio of sizes for the scale."""
    attributes = attributes_of(node)
    if attributes.get("antialias"):
        return "antialias: TVM leaves it out"
    shape, made = (shape_of(name, types) for name in (node.input[0], node.output[0]))
    if attributes.get("coordinate_transformation_mode") == b"align_corners" and any(
        after == 1 < before for before, after in zip(shape or (), made or (), strict=False)
    ):
        return "align_corners, and a size of 1: TVM divides by 0"
    place = 2 if node.op_type == "Resize" and len(node.input) > 2 else 1
    name = node.input[place] if len(node.input) > place else ""
    given = constants.get(name) if name else attributes.get("scales")
    scales = None if given is None else np.asarray(given, np.float64).reshape(-1)
    if scales is None or not scales.size or shape is None or len(shape) != len(scales) or 0 in shape:
        return ""
    exact = np.asarray(shape) * scales
    if np.all(np.abs(exact - np.round(exact)) <= 1e-3):
        return ""
    words = [round(float(scale), 6) for scale in scales]
    return f"{list(shape)} times {words}, its scales, are no whole sizes, and TVM would scale by the ratio of the rounded ones"


def _pad(node: onnx.NodeProto, types: Types, constants: Constants) -> str:
    return "mode wrap" if attributes_of(node).get("mode") == b"wrap" else ""


_LATER = "the shape of its result is known only as the network runs"
_BODY = "how often its body runs is known only as the network runs"
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_RANDOM = (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
)  # fmt: skip
_RESIZE = Refusal("antialias; of linear and cubic ones, scales that do not give whole sizes", _resize)

#: By operator; checked once constants are folded, functions written out and nodes repaired.
REFUSALS: dict[str, Refusal] = {
    "AveragePool": Refusal("ceil_mode where a window starts behind the input, or with count_include_pad", ceil_mode),
    "BatchNormalization": Refusal("training_mode", _training),
    "DFT": Refusal("an axis that is computed; of operator set 20 none, but of tensors with three axes", _dft),
    "DequantizeLinear": Refusal("block_size; scales of float16", _quantised),
    "Dropout": Refusal("training_mode", drops_at_random),
    "If": _always("which of its branches runs is known only as the network runs"),
    "Loop": _always(_BODY),
    "MaxPool": Refusal("ceil_mode where a window starts behind the input; its second output", _max_pool),
    "MaxUnpool": Refusal("the shape of its output as an input", _max_unpool),
    "NonMaxSuppression": _always(_LATER),
    "NonZero": _always(_LATER),
    "Pad": Refusal("mode wrap", _pad),
    "QuantizeLinear": Refusal("block_size; scales of float16", _quantised),
    "Resize": _RESIZE,
    "RoiAlign": Refusal("mode max; coordinates that move by half a pixel", _roi_align),
    "Scan": _always(_BODY),
    "Unique": _always(_LATER),
    "Upsample": _RESIZE,
    **{f"Reduce{name}": Refusal("axes that are computed", _reduce) for name in _REDUCTIONS},
    **{name: _always("its result is random") for name in _RANDOM},
}
