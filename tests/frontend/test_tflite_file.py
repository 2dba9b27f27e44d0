"""Damaged TFLite files are refused before anything relies on them."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.frontend.tflite_models import Model, needs_mediapipe
from tvm_codl.errors import UserError
from tvm_codl.frontend import zoo
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.tflite_file import IDENTIFIER, is_tflite, read_tflite, write_tflite


def small(path: Path) -> Path:
    model = Model()
    x, one = model.input(1, 4), model.constant(np.ones(4, np.float32))
    return model.save(path, model.add("RELU", [model.add("ADD", [x, one], [1, 4])], [1, 4]))


@pytest.mark.parametrize("content", [b"", b"TFL3", b"garbage", b"\0\0\0\0TFL2" + b"\0" * 64, bytes(range(256))])
def test_what_has_no_identifier_is_no_tflite(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.tflite"
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not a TFLite file") as error:
        load_model(str(path))
    assert str(len(content)) in error.value.evidence and error.value.next


@pytest.mark.parametrize("behind", [b"", b"\0" * 64, b"\xff" * 64, bytes(range(256)) * 4])
def test_an_identifier_alone_is_damage(tmp_path: Path, behind: bytes) -> None:
    path = tmp_path / "a.tflite"
    path.write_bytes(b"\x1c\0\0\0" + IDENTIFIER + behind)
    with pytest.raises(UserError, match="is damaged") as error:
        load_model(str(path))
    assert error.value.evidence


def test_the_identifier_counts_where_the_name_says_nothing(tmp_path: Path) -> None:
    assert is_tflite(small(tmp_path / "network.bin"))
    assert load_model(str(tmp_path / "network.bin")).inputs == (("x", (1, 4), "float32"),)
    with pytest.raises(UserError, match="no such model file"):
        load_model(str(tmp_path / "missing.tflite"))


@needs_mediapipe
@settings(max_examples=examples(40))
@given(st.floats(0, 1, exclude_max=True))
def test_a_file_that_was_cut_off_is_refused(kept: float) -> None:
    content = zoo.entry("face_detection").path().read_bytes()[:-64]  # which hold nothing of the network
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cut.tflite")
        path.write_bytes(content[: int(kept * len(content))])
        with pytest.raises(UserError):
            read_tflite(path)


@settings(max_examples=examples(200))
@given(st.integers(0), st.integers(1, 20))
def test_changed_bytes_are_read_or_refused(seed: int, count: int) -> None:
    drawn = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = small(Path(folder, "changed.tflite"))
        content = bytearray(path.read_bytes())
        for _ in range(count):
            content[drawn.randrange(8, len(content))] = drawn.randrange(256)
        path.write_bytes(content)
        try:
            write_tflite(read_tflite(path))
        except UserError as error:
            assert error.evidence


def test_operators_in_a_wrong_order_are_refused(tmp_path: Path) -> None:
    model = read_tflite(small(tmp_path / "a.tflite"))
    model.subgraphs[0].operators.reverse()
    (tmp_path / "a.tflite").write_bytes(write_tflite(model))
    with pytest.raises(UserError, match="damaged") as error:
        load_model(str(tmp_path / "a.tflite"))
    assert "RELU" in error.value.evidence
