"""Reference outputs: an ONNX file's by onnxruntime, a TFLite file's by LiteRT."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnxruntime

from tvm_codl.frontend.interpreter import tflite_outputs
from tvm_codl.frontend.tflite_file import is_tflite
from tvm_codl.relay.model import LoadedModel


def reference_outputs(model: LoadedModel, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the network's file on ``inputs``, on one CPU thread, in the file's order."""
    if is_tflite(model.path):
        return tflite_outputs(model.path, inputs)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, dict(inputs))]
