"""Peers: the programs that a network's user has already, on the cores of both processors together."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime

from tvm_codl.errors import UserError
from tvm_codl.frontend.interpreter import invoked
from tvm_codl.frontend.tflite_file import is_tflite
from tvm_codl.measure.interleave import RUNS
from tvm_codl.relay.model import LoadedModel

#: Runs a network once.
Run = Callable[[], object]


def open_peers(model: LoadedModel, inputs: Mapping[str, np.ndarray]) -> dict[str, Run]:
    """By name and version those that are installed and take the network's file: onnxruntime or LiteRT, and OpenVINO.

    Each is ready to run it with ``inputs`` in as many threads as this process has cores.  Raises :class:`UserError` for a
    network that is no file.
    """
    if model.path is None:
        raise UserError(
            f"{model.name} is no file",
            "no other program can run it",
            "leave out --peers, or name an ONNX or TFLite file",
        )
    cores = len(os.sched_getaffinity(0))
    openers = [_litert if is_tflite(model.path) else _onnxruntime]
    if importlib.util.find_spec("openvino"):
        openers.append(_openvino)
    return dict(opener(model.path, inputs, cores) for opener in openers)


def sample_peer(run: Run) -> list[float]:
    """Samples in ms, as :func:`.interleave.sample` takes them of a library: the first run does not count."""
    times = []
    for _ in range(1 + RUNS):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times[1:]


def _onnxruntime(path: Path, inputs: Mapping[str, np.ndarray], cores: int) -> tuple[str, Run]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = dict(inputs)
    return f"onnxruntime {onnxruntime.__version__}", lambda: session.run(None, feeds)


def _litert(path: Path, inputs: Mapping[str, np.ndarray], cores: int) -> tuple[str, Run]:
    return f"LiteRT {version('ai-edge-litert')}", invoked(path, inputs, cores).invoke


def _openvino(path: Path, inputs: Mapping[str, np.ndarray], cores: int) -> tuple[str, Run]:
    openvino = importlib.import_module("openvino")
    settings = {"INFERENCE_NUM_THREADS": cores, "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.Core().compile_model(str(path), "CPU", settings).create_infer_request()
    request.set_tensors({name: openvino.Tensor(np.ascontiguousarray(value)) for name, value in inputs.items()})
    return f"OpenVINO {openvino.__version__.split('-')[0]}", request.infer
