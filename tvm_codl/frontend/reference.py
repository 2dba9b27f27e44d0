"""Reference outputs: those of the program that a network came from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

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
    session = precise_session(str(path), options)
    return [np.asarray(value) for value in session.run(None, dict(inputs))]


def precise_session(model: str | bytes, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    """A session in which sums of 8-bit products do not overflow 16 bits, as onnxruntime's do on x86 without VNNI."""
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except NoKernel:  # it has no kernel for int8 data and the uint8 weights that it made for the others
        return onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], disabled_optimizers=["Avx2WeightS8ToU8Transformer"]
        )
