from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.frontend.onnx_models import save
from tvm_codl.errors import UserError
from tvm_codl.frontend.onnx_file import input_shapes, output_names, read_onnx

RELU = (helper.make_node("Relu", ["x"], ["y"]),)


def test_static_shapes_need_no_option(tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", RELU, [1, 3, 8, 8], [1, 3, 8, 8])
    assert input_shapes(read_onnx(path), {}, path) == {"x": (1, 3, 8, 8)}


def test_dynamic_dims_name_the_input_and_the_exact_option(tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", RELU, ["batch", 3, "h", "w"], ["batch", 3, "h", "w"])
    with pytest.raises(UserError) as error:
        input_shapes(read_onnx(path), {}, path)
    assert "x: [batch, 3, h, w]" in error.value.evidence
    assert error.value.next == "add --shape x:[1,3,224,224]"
    assert input_shapes(read_onnx(path), {"x": (1, 3, 32, 64)}, path) == {"x": (1, 3, 32, 64)}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"z": (1, 3, 8, 8)}, "no input 'z'"),
        ({"x": (1, 3, 8)}, "does not fit"),
        ({"x": (1, 4, 8, 8)}, "does not fit"),
        ({"x": (0, 3, 8, 8)}, "does not fit"),
    ],
)
def test_options_that_contradict_the_file(tmp_path: Path, given: dict[str, tuple[int, ...]], words: str) -> None:
    path = save(tmp_path / "a.onnx", RELU, ["n", 3, 8, 8], ["n", 3, 8, 8])
    with pytest.raises(UserError, match=words):
        input_shapes(read_onnx(path), given, path)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x7fELF" + b"\0" * 64, b"{}", bytes(range(256)) * 4])
def test_what_is_no_onnx_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"not an ONNX file|cannot be read"):
        read_onnx(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.onnx", tmp_path):
        with pytest.raises(UserError, match="no such model file"):
            read_onnx(path)


def test_missing_external_weights_are_named(tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", RELU, [1], [1])
    proto = onnx.load(path)
    tensor = proto.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=1)
    tensor.external_data.add(key="location", value="elsewhere.bin")
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(UserError, match="cannot be read"):
        read_onnx(path)


def test_all_outputs_that_are_no_tensors_are_named(tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", RELU, [2], [2])
    proto = read_onnx(path)
    assert output_names(proto) == ("y",)
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2]))
    optional = helper.make_optional_type_proto(kind)
    proto.graph.output.extend([helper.make_value_info("list", kind), helper.make_value_info("maybe", optional)])
    with pytest.raises(UserError) as raised:
        output_names(proto)
    assert "'list'" in raised.value.evidence and "'maybe'" in raised.value.evidence
