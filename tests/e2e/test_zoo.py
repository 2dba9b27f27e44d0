"""Every network of the zoo, with every operator split, gives the reference's answer on the reference phone.

Networks that take pictures of any size run on small ones here; all layers are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest

import tvm_codl as codl
from tests.e2e.by_hand import every_operator_split
from tvm_codl.frontend import zoo
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.frontend.zoo import resnet
from tvm_codl.measure.answers import check_answer

SMALL: dict[str, Callable[[], onnx.ModelProto] | None] = {
    "resnet18": resnet.build_18,
    "resnet50_v1": lambda: resnet.build_v1(64),
    "resnet50_v2": lambda: resnet.build_v2(64),
    "mobilenet_v1": lambda: zoo.mobilenet.build_v1(96),
    "mobilenet_v2": lambda: zoo.mobilenet.build_v2(96),
    "squeezenet": lambda: zoo.squeezenet.build(96),
    "alexnet": zoo.vgg.build_alexnet,
    "vgg16": lambda: zoo.vgg.build_vgg16(32),
    "yolov2": lambda: zoo.yolov2.build(96),
    "posenet": lambda: zoo.posenet.build(97),
    "retinaface": lambda: zoo.retinaface.build(128),
    "style_transfer": lambda: zoo.style_transfer.build(48, 64),
    "matmul": lambda: zoo.matmul.build(32, 64),
    "bert_base": lambda: zoo.bert_base.build(16, 2),
    "ppocr_det": None,
    "ppocr_cls": None,
    "ppocr_rec": None,
    "face_detection": None,
    "face_landmark": None,
    "hand_landmark": None,
    "palm_detection": None,
    "selfie_segmentation": None,
}
pytestmark = pytest.mark.slow


def test_no_network_is_left_out() -> None:
    assert SMALL.keys() | {"small"} == {entry.name for entry in zoo.ENTRIES}  # test_small.py has small


@pytest.fixture(scope="module")
def session() -> Iterator[codl.Session]:
    with codl.connect() as session:
        yield session


@pytest.mark.parametrize("name", SMALL)
def test_every_operator_split_gives_the_references_answer(name: str, session: codl.Session, tmp_path: Path) -> None:
    build = SMALL[name]
    source = f"zoo:{name}"
    if build is not None:
        source = str(tmp_path / f"{name}.onnx")
        Path(source).write_bytes(build().SerializeToString())
    model = codl.load_model(source)
    prepared = codl.prepare(model)
    plan = every_operator_split(prepared)
    split = [o for o in plan.operators if o.placement.on == "split"]
    assert len(split) >= 0.7 * len(plan.operators)
    library = session.build(prepared, plan, tmp_path / "model.so")
    inputs = model.sample_inputs()
    check_answer(name, session.open(library), inputs, reference_outputs(model, inputs))
