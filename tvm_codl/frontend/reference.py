"""Reference outputs, by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnxruntime

from tvm_codl.relay.model import LoadedModel


def reference_outputs(model: LoadedModel, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the network's ONNX file on ``inputs``, by onnxruntime on one CPU thread, in the file's order."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model.onnx_path), options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, dict(inputs))]
