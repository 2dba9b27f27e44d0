"""The zoo's networks have the published numbers of parameters and multiply-adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import onnx
import pytest
from onnx import TensorProto

from tvm_codl.frontend import zoo
from tvm_codl.frontend.zoo import resnet
from tvm_codl.frontend.zoo.network import Network


class Size:
    """Learned parameters and multiply-adds of an ONNX graph, by its shapes alone."""

    def __init__(self, model: onnx.ModelProto) -> None:
        # Equal to what a framework counts: running statistics are not learned, constants ("c0") are no parameters.
        statistics = {name for node in _nodes(model, "BatchNormalization") for name in node.input[3:]}
        learned = [w for w in model.graph.initializer if w.name.startswith("w") and w.name not in statistics]
        self.parameters = sum(prod(w.dims) for w in learned)
        self.statistics = sum(prod(w.dims) for w in model.graph.initializer if w.name in statistics)
        graph = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
        shapes = {w.name: tuple(w.dims) for w in graph.initializer}
        for value in (*graph.input, *graph.value_info, *graph.output):
            shapes[value.name] = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        self.outputs = {value.name: shapes[value.name] for value in graph.output}
        self.convolutions: list[tuple[int, int, int, int, int]] = []
        self.macs = 0
        for node in graph.node:
            if node.op_type in ("Conv", "ConvTranspose"):
                x, w, y = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
                # Every output value of a convolution, and every input value of a transposed one, meets a whole kernel.
                self.macs += prod(y if node.op_type == "Conv" else x) * prod(w[1:])
                if node.op_type == "Conv":
                    self.convolutions.append((x[2], x[1], y[1], w[2], x[2] // y[2]))
            elif node.op_type in ("Gemm", "MatMul"):
                self.macs += prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]


def _nodes(model: onnx.ModelProto, kind: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == kind]


@pytest.fixture(autouse=True)
def weights_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes are all that counts here; the values of VGG-16 take seconds."""

    def shape_only(net: Network, shape: Sequence[int], fan_in: int) -> str:
        name = f"w{len(net.weights)}"
        net.weights.append(TensorProto(name=name, dims=list(shape), data_type=TensorProto.FLOAT))
        return name

    monkeypatch.setattr(Network, "he_normal", shape_only)


# Parameters to the last one, multiply-adds to what the publication rounds to; the modules' docstrings say where from.
PUBLISHED: dict[str, tuple[Callable[[], onnx.ModelProto], int, float]] = {
    "resnet18": (resnet.build_18, 11_689_512, 1.8e9),
    "resnet50_v1": (resnet.build_v1, 25_557_032, 3.8e9),
    "resnet50_v2": (resnet.build_v2, 25_549_352, 4.1e9),
    "mobilenet_v1": (zoo.mobilenet.build_v1, 4_231_976, 569e6),
    "mobilenet_v2": (zoo.mobilenet.build_v2, 3_504_872, 300e6),
    "squeezenet": (zoo.squeezenet.build, 1_248_424, 0.82e9),
    "alexnet": (zoo.vgg.build_alexnet, 61_100_840, 0.71e9),
    "vgg16": (zoo.vgg.build_vgg16, 138_357_544, 15.5e9),
    "yolov2": (zoo.yolov2.build, 50_962_889, 29.46e9 / 2),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_multiply_adds_are_the_published_ones(name: str) -> None:
    build, parameters, macs = PUBLISHED[name]
    size = Size(build())
    assert size.parameters == parameters
    assert size.macs == pytest.approx(macs, rel=0.017)


def test_yolov2_has_as_many_floats_as_the_authors_weight_file() -> None:
    size = Size(zoo.yolov2.build())
    assert 16 + 4 * (size.parameters + size.statistics) == 203_934_260  # bytes of yolov2.weights
    assert size.outputs == {"output": (1, 425, 13, 13)}
    assert 2 * Size(zoo.yolov2.build(608)).macs == pytest.approx(62.94e9, rel=1e-4)


def test_yolov2_has_the_convolutions_that_codl_measured() -> None:
    """CoDL's dataset, rows YOLO-V2, as (input size, inputs, outputs, kernel, stride): all but the passthrough and the head,
    where its network is another variant."""
    codl = [
        (416, 3, 32, 3), (208, 32, 64, 3), (104, 64, 128, 3), (104, 128, 64, 1), (104, 64, 128, 3), (52, 128, 256, 3),
        (52, 256, 128, 1), (52, 128, 256, 3), (26, 256, 512, 3), (26, 512, 256, 1), (26, 256, 512, 3), (26, 512, 256, 1),
        (26, 256, 512, 3), (13, 512, 1024, 3), (13, 1024, 512, 1), (13, 512, 1024, 3), (13, 1024, 512, 1),
        (13, 512, 1024, 3), (13, 1024, 1024, 3), (13, 1024, 1024, 3),
    ]  # fmt: skip
    found = Size(zoo.yolov2.build()).convolutions
    assert found[:20] == [(*row, 1) for row in codl]
    assert found[20:] == [(26, 512, 64, 1, 1), (13, 1280, 1024, 3, 1), (13, 1024, 425, 1, 1)]


def test_retinaface_is_resnet50_and_its_pyramid() -> None:
    size = Size(zoo.retinaface.build())
    trunk = 25_557_032 - 2048 * 1000 - 1000
    pyramid = (256 + 512 + 1024 + 2048) * 256 + 4 * 9 * 256 * 256 + 8 * 2 * 256
    module = 9 * (256 * 128 + 256 * 64 + 3 * 64 * 64) + 2 * (128 + 4 * 64)
    heads = 3 * (2 + 4 + 10) * (9 * 256 + 1)
    assert size.parameters == trunk + pyramid + 5 * (module + heads) == 30_176_304
    places = sum(side * side for side in (160, 80, 40, 20, 10))
    assert size.outputs == {name: (1, 3 * places, n) for name, n in (("classes", 2), ("boxes", 4), ("landmarks", 10))}


def test_posenet_is_mobilenet_with_the_published_heads() -> None:
    size = Size(zoo.posenet.build())
    assert size.parameters == 4_231_976 - 1024 * 1000 - 1000 + (1024 + 1) * (17 + 34 + 32 + 32)
    assert {name: shape[1:] for name, shape in size.outputs.items()} == {
        "heatmaps": (17, 9, 9), "offsets": (34, 9, 9), "forward": (32, 9, 9), "backward": (32, 9, 9),
    }  # fmt: skip


def test_style_transfer_has_the_convolutions_that_codl_measured() -> None:
    size = Size(zoo.style_transfer.build())
    assert size.convolutions == [
        (480, 3, 32, 9, 1), (480, 32, 64, 3, 2), (240, 64, 128, 3, 2), *[(120, 128, 128, 3, 1)] * 10, (480, 32, 3, 9, 1),
    ]  # fmt: skip
    assert size.outputs == {"output": (1, 3, 480, 640)}


def test_bert_base_has_the_published_parameters_but_pooler_and_second_segment() -> None:
    size = Size(zoo.bert_base.build())
    assert size.parameters == 109_482_240 - (768 * 768 + 768) - 768
    assert size.outputs == {"output": (1, 128, 768)}


def test_matmul_counts_both_kinds_of_product() -> None:
    size = Size(zoo.matmul.build())
    assert size.parameters == 4 * (1024 * 1024 + 1024)
    assert size.macs == 4 * 256 * 1024 * 1024 + 2 * 256 * 256 * 1024


@pytest.mark.parametrize("width", [0.35, 0.5, 0.75, 1.4])
def test_mobilenet_v2_widths_keep_channels_in_eights(width: float) -> None:
    size = Size(zoo.mobilenet.build_v2(width=width))
    assert all(outputs % 8 == 0 for _, _, outputs, _, _ in size.convolutions)
    published = {0.35: 1.7e6, 0.5: 2.0e6, 0.75: 2.6e6, 1.4: 6.1e6}  # the authors' list of checkpoints
    assert size.parameters == pytest.approx(published[width], rel=0.03)
