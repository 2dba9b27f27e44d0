from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest

from tvm_codl.errors import UserError
from tvm_codl.frontend import zoo
from tvm_codl.frontend.tflite_file import read_tflite
from tvm_codl.frontend.zoo import network, resnet, small
from tvm_codl.frontend.zoo.entry import build_once


def test_resnet18_has_the_published_size() -> None:
    net = resnet.build_18()
    # 11,689,512 learned parameters, and the running mean and variance of 20 batch normalisations (4800 channels).
    sizes = [int(np.prod(w.dims)) for w in net.graph.initializer]
    assert sum(sizes) - 2 * 4800 == 11_689_512
    assert sum(node.op_type == "BatchNormalization" for node in net.graph.node) == 20


def test_weights_are_the_same_in_every_build() -> None:
    first, second = (hashlib.sha256(small.build().SerializeToString()).hexdigest() for _ in range(2))
    assert first == second


def test_files_are_written_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_CODL_CACHE", str(tmp_path))
    calls = []

    def build() -> onnx.ModelProto:
        calls.append(1)
        return small.build()

    path = build_once("x", build).path
    assert path() == path()
    assert len(calls) == 1
    assert [p.name for p in (tmp_path / "zoo").iterdir()] == ["x-1.onnx"]


@pytest.mark.parametrize(("name", "like"), [("resnet", "resnet"), ("mobilenetv2", "mobilenet_v2"), ("", "")])
def test_a_name_that_nothing_has_is_answered_with_one_that_is_like_it(name: str, like: str) -> None:
    with pytest.raises(UserError, match="the zoo has no model") as raised:
        zoo.entry(name)
    proposed = raised.value.next.rpartition("zoo:")[2]
    assert proposed.startswith(like) and zoo.entry(proposed).name == proposed


MEDIAPIPE = {entry.name for entry in zoo.mediapipe.ENTRIES}
#: Written in seconds, and no more than a few dozen megabytes.
LIGHT = {
    "resnet18",
    "mobilenet_v1",
    "mobilenet_v2",
    "squeezenet",
    "ppocr_det",
    "ppocr_cls",
    "ppocr_rec",
    "small",
} | MEDIAPIPE


@pytest.mark.parametrize(
    "entry",
    [pytest.param(e, id=e.name, marks=() if e.name in LIGHT else pytest.mark.slow) for e in zoo.ENTRIES],
)
def test_every_entry_has_a_valid_file(entry: zoo.ZooEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if entry.name not in LIGHT:
        monkeypatch.setenv("TVM_CODL_CACHE", str(tmp_path))
    path = entry.path()
    if entry.name in MEDIAPIPE:
        read_tflite(path)
    else:
        onnx.checker.check_model(str(path))
    if path.is_relative_to(tmp_path):
        path.unlink()


@pytest.mark.parametrize("entry", [e for e in zoo.ENTRIES if e.sample], ids=lambda e: e.name)
def test_samples_have_the_wanted_shape_and_say_something(entry: zoo.ZooEntry) -> None:
    assert entry.sample is not None
    shape = next(iter(entry.shapes.values()), (1, 64, 48, 3) if entry.name in MEDIAPIPE else (1, 16))
    value = entry.sample(shape)
    assert value.shape == shape and np.isfinite(value).all()
    assert len(np.unique(value)) > 10


def test_names_are_unique_and_a_wrong_one_lists_them() -> None:
    names = [entry.name for entry in zoo.ENTRIES]
    assert len(names) == len(set(names))
    with pytest.raises(UserError) as found:
        zoo.entry("resnet")
    assert all(f"zoo:{name}" in found.value.evidence for name in names)


def test_large_weights_are_drawn_in_parts_that_make_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def values() -> np.ndarray:
        net = network.Network("x", seed=3)
        net.he_normal((7, 11, 3, 3), 99)
        return onnx.numpy_helper.to_array(net.weights[0])

    whole = values()
    monkeypatch.setattr(network, "_DRAWN_AT_ONCE", 64)
    np.testing.assert_array_equal(values(), whole)
    assert np.std(whole) == pytest.approx(np.sqrt(2 / 99), rel=0.1)
