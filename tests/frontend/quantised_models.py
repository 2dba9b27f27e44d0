"""Small networks, and others, as onnxruntime's static quantisation writes them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from tvm_codl.frontend.zoo.network import Network

Format = Literal["QDQ", "QOperator"]
Type = Literal["QUInt8", "QInt8"]
FORMATS: tuple[Format, ...] = ("QDQ", "QOperator")

ROWS = 9


class _Samples(CalibrationDataReader):
    def __init__(self, shape: tuple[int, ...], count: int) -> None:
        random = np.random.default_rng(1)
        self.values = iter([{"input": random.standard_normal(shape).astype(np.float32)} for _ in range(count)])

    def get_next(self) -> dict[str, np.ndarray] | None:  # type: ignore[override]
        return next(self.values, None)


def quantised(
    proto: onnx.ModelProto, folder: Path, format: Format, activations: Type = "QUInt8", per_channel: bool = True
) -> Path:
    """A file with ``proto`` quantised: int8 weights, and activations of that type, calibrated on random inputs."""
    plain, prepared = folder / "float.onnx", folder / "prepared.onnx"
    target = folder / f"{proto.graph.name}-{format}-{activations}.onnx"
    plain.write_bytes(proto.SerializeToString())
    quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
    shape = tuple(d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim)
    logging.disable(logging.WARNING)  # that this type is slow in onnxruntime
    try:
        quantize_static(
            str(prepared),
            str(target),
            _Samples(shape, 3),
            quant_format=QuantFormat[format],
            per_channel=per_channel,
            activation_type=QuantType[activations],
            weight_type=QuantType.QInt8,
        )
    finally:
        logging.disable(logging.NOTSET)
    return target


def _picture(build: Callable[[Network], str], channels: int = 4) -> onnx.ModelProto:
    """``build`` adds the operators behind ``input``."""
    net = Network(build.__name__, seed=5)
    proto = net.finish((1, channels, ROWS, ROWS + 2), build(net), ())
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto


def padded(net: Network) -> str:
    """The input has both signs: what pads it is not 0."""
    return net.conv("input", 4, 6, 3, bias=True)


def strided(net: Network) -> str:
    return net.conv(net.add("Relu", net.conv("input", 4, 6, 3, bias=True)), 6, 8, 3, stride=2)


def depthwise(net: Network) -> str:
    return net.conv(net.rectify(net.conv("input", 4, 8, 1, bias=True), "relu6"), 8, 8, 3, groups=8, bias=True)


def grouped(net: Network) -> str:
    return net.conv(net.conv("input", 4, 8, 1, bias=True), 8, 8, 3, groups=2)


def sum_of_two(net: Network) -> str:
    left = net.conv("input", 4, 8, 3, bias=True)
    return net.add("Relu", net.add("Add", left, net.conv(net.add("Relu", left), 8, 8, 3)))


def two_scales(net: Network) -> str:
    """Both arms of the sum have a convolution of their own."""
    x = net.add("Relu", net.conv("input", 4, 8, 3, bias=True))
    return net.conv(net.add("Add", net.conv(x, 8, 8, 1), net.conv(x, 8, 8, 3)), 8, 4, 1)


def concatenated(net: Network) -> str:
    x = net.add("Relu", net.conv("input", 4, 4, 3))
    return net.conv(net.add("Concat", x, net.conv(x, 4, 6, 1), axis=1), 10, 4, 1)


def max_pooled(net: Network) -> str:
    return net.conv(net.pool("Max", net.conv("input", 4, 6, 3), 3, 2, 1), 6, 6, 3)


def average_pooled(net: Network) -> str:
    return net.pool("Average", net.conv("input", 4, 6, 3), 2, 2)


def classified(net: Network) -> str:
    return net.dense(net.global_pool(net.add("Relu", net.conv("input", 4, 16, 3))), 16, 10)


def activated(net: Network) -> str:
    """With an activation that is computed in float32."""
    x = net.conv("input", 4, 6, 3)
    return net.conv(net.add("Mul", x, net.add("Sigmoid", x)), 6, 6, 3)


def multiplied(net: Network) -> str:
    return net.add("MatMul", net.add("Flatten", "input"), net.he_normal((4 * ROWS * (ROWS + 2), 12), 64))


SMALL: dict[str, onnx.ModelProto] = {
    build.__name__: _picture(build)
    for build in (
        padded, strided, depthwise, grouped, sum_of_two, two_scales, concatenated, max_pooled, average_pooled, classified,
        activated, multiplied,
    )
}  # fmt: skip
