"""Reference outputs: those of the program that a network came from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime

from tvm_codl.relay.model import LoadedModel


def reference_outputs(model: LoadedModel, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the network on ``inputs``, in its own order, by who is to be believed: onnxruntime for an ONNX file,
    LiteRT for a TFLite file, TVM's executor for a Relay module."""
    return model.reference(inputs)


def run_onnx(path: Path, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of an ONNX file, by onnxruntime on one CPU thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Without it the sums of quantised networks overflow 16 bits on x86 without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, dict(inputs))]
