"""TVM's importer of ONNX, with converters of our own where TVM's are slow, wrong or missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relay
from tvm.relay.frontend import onnx as stock
from tvm.relay.frontend.common import infer_shape
from tvm.topi.utils import get_const_tuple

from tvm_codl.relay.model import Shape

#: Relay of a node's inputs (None for one that is left out) and attributes; None leaves the node to TVM.
Converter = Callable[[Sequence[Any], Mapping[str, Any]], Any]


def from_onnx(proto: onnx.ModelProto, shapes: Mapping[str, Shape], opset: int) -> tuple[tvm.IRModule, dict[str, Any]]:
    """The network as Relay with its weights as parameters, and these by name.

    Weights that were constants at once (``freeze_params``) would cost a compiled kernel each.
    """
    with _Importer(dict(shapes), "float32", False, op_type_dict={}) as importer:
        module, weights = importer.from_onnx(proto.graph, opset)
    return module, weights


class _Importer(stock.GraphProto):
    def __enter__(self) -> _Importer:
        super().__enter__()
        self._known: dict[str, Any] = {}
        stock.infer_shape = _known_shape
        return self

    def __exit__(self, *error: Any) -> None:
        stock.infer_shape = infer_shape
        super().__exit__(*error)

    def _convert_operator(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> Any:
        convert = CONVERTERS.get(op_name)
        made = convert(list(inputs), attrs) if convert else None
        if made is not None:
            return made
        # TVM lists its converters anew for each node, which takes milliseconds.
        self._known = self._known or stock._get_convert_map(opset)
        if op_name in self._known:
            return self._known[op_name](inputs, attrs, self._params)
        return super()._convert_operator(op_name, inputs, attrs, opset)


def _known_shape(expression: relay.Expr, mod: tvm.IRModule | None = None) -> Any:
    """As TVM's, which infers all that the expression was made from once more, for each convolution of a network."""
    kind = relay.transform.InferTypeLocal(expression) if mod is None else None
    return get_const_tuple(kind.shape) if isinstance(kind, relay.TensorType) else infer_shape(expression, mod)


def _matmul(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> relay.Expr | None:
    """TVM works the shapes out by kernels that it compiles as it imports, which takes seconds."""
    a, b = inputs
    shapes = tuple(_known_shape(a)), tuple(_known_shape(b))
    of_a, of_b = shapes
    if max(len(of_a), len(of_b)) < 3 or not all(isinstance(n, int) and n for n in of_a + of_b):
        return None
    rows, columns = of_a[-2:-1], of_b[-1:] if len(of_b) > 1 else ()
    if len(of_a) == 1:
        a, of_a = relay.reshape(a, (1, *of_a)), (1, *of_a)
    if len(of_b) == 2:
        product = relay.nn.dense(relay.reshape(a, (-1, of_a[-1])), relay.transpose(b))
        return relay.reshape(product, (*of_a[:-2], *rows, *columns))
    if len(of_b) == 1:
        b, of_b = relay.reshape(b, (*of_b, 1)), (*of_b, 1)
    batch = tuple(int(n) for n in np.broadcast_shapes(of_a[:-2], of_b[:-2]))
    given = []
    for each, shape in ((a, of_a), (b, of_b)):
        if int(np.prod(shape[:-2])) != int(np.prod(batch)):
            each = relay.broadcast_to(each, (*batch, *shape[-2:]))
        given.append(relay.reshape(each, (-1, *shape[-2:])))
    product = relay.nn.batch_matmul(given[0], relay.transpose(given[1], [0, 2, 1]))
    return relay.reshape(product, (*batch, *rows, *columns))


def _grid_sample(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> relay.Expr | None:
    """Of volumes: TVM takes the grid for one of images."""
    data, grid = inputs
    if len(_known_shape(data)) != 5:
        return None
    return relay.image.grid_sample(
        data,
        relay.transpose(grid, (0, 4, 1, 2, 3)),
        attrs.get("mode", b"bilinear").decode(),
        layout="NCDHW",
        padding_mode=attrs.get("padding_mode", b"zeros").decode(),
        align_corners=bool(attrs.get("align_corners", 0)),
    )


def _sequence_insert(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> relay.Expr | None:
    """Before a place that is counted from the back; TVM inserts behind it."""
    if len(inputs) < 3 or not isinstance(inputs[2], relay.Constant):
        return None
    tensors = [inputs[0][i] for i in range(len(inputs[0]))]
    tensors.insert(int(inputs[2].data.numpy()), inputs[1])
    return relay.Tuple(tensors)


def _top_k(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The smallest: TVM sorts all and slices, by bounds too large for its types."""
    if attrs.get("largest", 1) or len(inputs) < 2 or not isinstance(inputs[1], relay.Constant):
        return None
    count = int(inputs[1].data.numpy().reshape(-1)[0])
    return relay.topk(inputs[0], count, attrs.get("axis", -1), "both", is_ascend=True, dtype="int64")


CONVERTERS: dict[str, Converter] = {
    "GridSample": _grid_sample,
    "MatMul": _matmul,
    "SequenceInsert": _sequence_insert,
    "TopK": _top_k,
}
