from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest

from tvm_codl.frontend import zoo
from tvm_codl.frontend.zoo import resnet18, small
from tvm_codl.frontend.zoo.entry import built


def test_resnet18_has_the_published_size() -> None:
    net = resnet18.build()
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

    path = built("x", 1, build)
    assert path() == path()
    assert len(calls) == 1
    assert [p.name for p in (tmp_path / "zoo").iterdir()] == ["x-1.onnx"]


@pytest.mark.parametrize("entry", zoo.ENTRIES, ids=lambda e: e.name)
def test_every_entry_has_a_valid_file(entry: zoo.ZooEntry) -> None:
    onnx.checker.check_model(str(entry.path()))
