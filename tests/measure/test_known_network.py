"""A network that was imported once is known while its file is not touched, and imported when more than its operators is
asked for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.zoo import entry
from tvm_codl.measure import known_network
from tvm_codl.measure.known_network import KnownNetwork
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Known, LatePrepared, Prepared


@pytest.fixture(scope="module")
def small() -> Prepared:
    return prepare(load_model("zoo:small"))


def no_import() -> Prepared:
    raise AssertionError("imported")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "small.onnx"
    shutil.copy(entry("small").path(), path)
    monkeypatch.setenv("TVM_CODL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(known_network, "SETTLED_S", 0.0)
    return path


def test_a_kept_network_is_known_until_its_file_changes(copy: Path, small: Prepared) -> None:
    assert KnownNetwork(str(copy), {}).read(no_import) is None
    KnownNetwork(str(copy), {}).keep(small)
    known = KnownNetwork(str(copy), {}).read(no_import)
    assert known is not None
    assert (known.name, known.graph, known.digest) == ("small", small.graph, small.digest)
    assert known.samples.keys() == small.samples.keys()
    for name, value in known.samples.items():
        np.testing.assert_array_equal(value, small.samples[name], strict=True)
    for value, answer in zip(known.answers, small.answers, strict=True):
        np.testing.assert_array_equal(value, answer, strict=True)
    assert known.quanta == small.quanta
    assert KnownNetwork(str(copy), {"x": (1, 3, 8, 8)}).read(no_import) is None
    with copy.open("ab") as file:
        file.write(b"\0")
    assert KnownNetwork(str(copy), {}).read(no_import) is None


def test_a_file_of_the_same_size_and_time_is_another(copy: Path, small: Prepared) -> None:
    KnownNetwork(str(copy), {}).keep(small)
    stat = copy.stat()
    copy.write_bytes(copy.read_bytes()[:-1] + b"\0")
    os.utime(copy, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert KnownNetwork(str(copy), {}).read(no_import) is None


def test_a_file_that_just_changed_is_not_kept(copy: Path, small: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_network, "SETTLED_S", 60.0)
    KnownNetwork(str(copy), {}).keep(small)
    assert KnownNetwork(str(copy), {}).read(no_import) is None


def test_half_a_file_is_no_network(copy: Path, small: Prepared) -> None:
    KnownNetwork(str(copy), {}).keep(small)
    (kept,) = (copy.parent / "cache" / "networks").iterdir()
    kept.write_bytes(kept.read_bytes()[:-9])
    assert KnownNetwork(str(copy), {}).read(no_import) is None


def test_a_known_network_is_imported_when_more_is_asked_for(small: Prepared) -> None:
    imports = []

    def load() -> Prepared:
        imports.append(1)
        return small

    late = LatePrepared(Known("small", small.graph, small.digest, small.samples, small.answers, (0.5,)), load)
    assert (late.name, late.axes, late.digest, late.quanta) == ("small", small.axes, small.digest, (0.5,))
    assert late.samples is small.samples and late.answers is small.answers
    assert imports == []
    assert late.weights is small.weights and late.module is small.module and late.model is small.model
    assert imports == [1] and not hasattr(late, "anything")
