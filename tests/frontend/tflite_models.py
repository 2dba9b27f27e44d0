"""Small TFLite models for the tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tvm_codl.frontend.tflite_file import write_tflite

needs_mediapipe = pytest.mark.skipif(importlib.util.find_spec("mediapipe") is None, reason="mediapipe is not installed")

SAME, VALID = schema.Padding.SAME, schema.Padding.VALID


class Model:
    """A graph that grows by one tensor or operator with each call; calls return the numbers of tensors."""

    def __init__(self) -> None:
        self.graph = schema.SubGraphT(tensors=[], inputs=[], outputs=[], operators=[])
        self.model = schema.ModelT(version=3, subgraphs=[self.graph], buffers=[schema.BufferT()], operatorCodes=[])

    def tensor(self, *shape: int, name: str = "", dtype: str = "float32") -> int:
        kind = getattr(schema.TensorType, dtype.upper())
        self.graph.tensors.append(schema.TensorT(shape=list(shape), type=kind, name=name.encode()))
        return len(self.graph.tensors) - 1

    def input(self, *shape: int, name: str = "x", signature: Sequence[int] | None = None) -> int:
        tensor = self.tensor(*shape, name=name)
        self.graph.tensors[tensor].shapeSignature = signature
        self.graph.inputs.append(tensor)
        return tensor

    def constant(self, value: np.ndarray) -> int:
        tensor = self.tensor(*value.shape, dtype=str(value.dtype))
        self.graph.tensors[tensor].buffer = len(self.model.buffers)
        self.model.buffers.append(schema.BufferT(np.frombuffer(value.tobytes(), np.uint8)))
        return tensor

    def add(
        self, name: str, inputs: Sequence[int], shape: Sequence[int], options: object = None, version: int = 1
    ) -> int:
        """An operator with one output; a ``name`` that TFLite does not have is a custom operator's."""
        number = getattr(schema.BuiltinOperator, name, schema.BuiltinOperator.CUSTOM)
        code = schema.OperatorCodeT(min(number, 127), version=version, builtinCode=number)
        operator = schema.OperatorT(len(self.model.operatorCodes), list(inputs), [self.tensor(*shape)])
        if number == schema.BuiltinOperator.CUSTOM:
            code.customCode = name.encode()
            operator.customOptions = options
        elif options is not None:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
            operator.builtinOptions = options
        self.model.operatorCodes.append(code)
        self.graph.operators.append(operator)
        return int(operator.outputs[0])

    def save(self, path: Path, *outputs: int) -> Path:
        for place, output in enumerate(outputs):
            self.graph.tensors[output].name = f"y{place}".encode()
        self.graph.outputs = list(outputs)
        path.write_bytes(write_tflite(self.model))
        return path
