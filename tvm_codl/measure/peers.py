"""Peers: the programs that a network's user has already, on the cores of both processors together."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime
import tvm

from tvm_codl.errors import UserError
from tvm_codl.frontend.interpreter import invoked
from tvm_codl.frontend.tflite_file import is_tflite
from tvm_codl.measure.context import Log
from tvm_codl.measure.interleave import RUNS, WARM_MS, Turn
from tvm_codl.relay.model import LoadedModel
from tvm_codl.runtime import plugin
from tvm_codl.runtime.comodule import Watched

#: Runs a network once.
Run = Callable[[], object]


def open_peers(model: LoadedModel, inputs: Mapping[str, np.ndarray], log: Log = lambda _: None) -> dict[str, Turn]:
    """The turns, by name and version, of those that are installed and take the network's file: onnxruntime or LiteRT, and
    OpenVINO, which does not read every operator.

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
    opened = [(_litert if is_tflite(model.path) else _onnxruntime)(model.path, inputs, cores)]
    if importlib.util.find_spec("openvino"):
        try:
            opened.append(_openvino(model.path, inputs, cores))
        except RuntimeError as error:
            log(f"OpenVINO does not run {model.name}: {' '.join(str(error).split())[-300:]}")
    return {name: partial(turn, run) for name, run in opened}


def turn(run: Run) -> Watched:
    """As a library's turn."""
    plugin.load()
    waited = tvm.get_global_func("codl.waited_ms")
    times: list[float] = []
    waits: list[float] = []
    while len(times) <= RUNS or sum(times[:-RUNS]) < WARM_MS:
        before, start = waited(), time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
        waits.append(max(waited() - before, 0.0))  # threads that have ended no longer count
    return Watched(tuple(times), tuple(waits))


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
    # It computes in bfloat16 where the processor can, unless told.
    settings = {"INFERENCE_NUM_THREADS": cores, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(str(path), "CPU", settings).create_infer_request()
    request.set_tensors({name: openvino.Tensor(np.ascontiguousarray(value)) for name, value in inputs.items()})
    return f"OpenVINO {openvino.__version__.split('-')[0]}", request.infer
