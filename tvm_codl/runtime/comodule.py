"""The Python handle on the native co-executor, the same here and over RPC."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import tvm

from tvm_codl.build.library import About, PortInfo
from tvm_codl.errors import DeviceError, UserError


class CoModule:
    """A library made ready on a device.

    ``module`` is the loaded library (``tvm.runtime.load_module`` here, ``remote.load_module`` over RPC) and ``cpu``
    that side's CPU device.  ``sharing`` is auto, svm, mapped or copied.
    Raises :class:`UserError` for a library that is none of ours, :class:`DeviceError` where the device refuses it.
    """

    def __init__(self, module: tvm.runtime.Module, cpu: Any, device_id: int = 0, sharing: str = "auto") -> None:
        try:
            self.about = msgspec.json.decode(module["about"](), type=About)
        except (AttributeError, tvm.error.TVMError, msgspec.DecodeError) as error:
            raise UserError(
                "this library was not built by tvm_codl, or by another version of it",
                _last_line(error),
                "tvm-codl build MODEL -o model.so",
            ) from error
        try:
            self._executor = module["create"](device_id, sharing)
        except tvm.error.TVMError as error:
            raise DeviceError("the device cannot run this library", _last_line(error), "tvm-codl doctor") from error
        self._library, self._cpu = module, cpu

    @property
    def inputs(self) -> tuple[PortInfo, ...]:
        return self.about.inputs

    @property
    def outputs(self) -> tuple[PortInfo, ...]:
        return self.about.outputs

    def set_inputs(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Copies the inputs to the device.  Raises :class:`UserError` for a name, shape or type that is not the model's."""
        wanted = {p.name: (i, p) for i, p in enumerate(self.inputs)}
        if set(inputs) != set(wanted):
            raise UserError(
                f"the model takes the inputs {sorted(wanted)}",
                f"given: {sorted(inputs)}",
                "name the arrays as the model does",
            )
        for name, value in inputs.items():
            index, port = wanted[name]
            if tuple(value.shape) != port.shape or str(value.dtype) != port.dtype:
                raise UserError(
                    f"input {name} must be {port.dtype}{list(port.shape)}",
                    f"given: {value.dtype}{list(value.shape)}",
                    "give an array of that shape and type, or build the model for another shape: --shape",
                )
            self._executor["set_input"](index, tvm.nd.array(np.ascontiguousarray(value), device=self._cpu))

    def get_outputs(self) -> list[np.ndarray]:
        """The last run's outputs, in the model's order and layout."""
        results = []
        for index, port in enumerate(self.outputs):
            order = port.order or tuple(range(len(port.shape)))
            stored = tvm.nd.empty(tuple(port.shape[a] for a in order), port.dtype, device=self._cpu)
            self._executor["get_output"](index, stored)
            value = np.transpose(stored.numpy(), np.argsort(order))
            if port.crop:
                axis, lo, hi = port.crop
                value = np.take(value, np.arange(lo, hi), axis=axis)
            results.append(np.ascontiguousarray(value))
        return results

    def run(self, inputs: Mapping[str, np.ndarray] | None = None) -> list[np.ndarray]:
        """One run.  Without ``inputs`` the last ones are taken again."""
        if inputs is not None:
            self.set_inputs(inputs)
        self._executor["run"]()
        return self.get_outputs()

    def benchmark(self, number: int = 1, repeat: int = 1) -> list[float]:
        """``repeat`` samples, each the mean of ``number`` runs, in ms, timed on the device."""
        return list(json.loads(self._executor["benchmark"](number, repeat)))

    def time_region(self, region: int, repeat: int = 3, min_ms: float = 1.0) -> list[float]:
        """Samples in ms of one region alone on its processor, without waiting for the other.

        Each is the mean over at least ``min_ms`` of runs with warm caches; with ``min_ms`` 0, one run as it is inside a
        network: inputs just written, weights out of the caches.
        """
        return list(json.loads(self._executor["time_region"](region, repeat, min_ms)))

    def time_region_busy(
        self, region: int, other: int | None = None, repeat: int = 3, min_ms: float = 1.0
    ) -> list[float]:
        """Samples in ms of one region while the other processor does the region ``other`` again and again.

        Without ``other`` it does nothing: the GPU's times here are its own clock's, so that alone and busy compare with
        each other (and not with :meth:`time_region`).  Caches are warm.  Raises :class:`DeviceError` where both regions
        are on one processor, and where ``other`` is too short to keep the GPU busy.
        """
        nobody = -1
        try:
            times = self._executor["time_region_busy"](region, nobody if other is None else other, repeat, min_ms)
        except tvm.error.TVMError as error:
            # Over RPC the device's own error comes in one of RPC's; any other is a device that went away.
            if isinstance(error, tvm.error.RPCError) and "Error caught from RPC call" not in str(error):
                raise
            raise DeviceError("the device cannot time a region beside another", _last_line(error)) from error
        return list(json.loads(times))

    def timeline(self) -> list[dict[str, Any]]:
        """Every kernel, wait and transfer of one run: name, processor, kind, region, start_us, end_us in one clock.

        The CPU's ``share`` events named ``feed`` and ``signal`` are its enqueueing of GPU commands and its telling the
        GPU that something is done.
        """
        return list(json.loads(self._executor["timeline"]()))

    @property
    def copied_bytes(self) -> int:
        """Bytes copied inside the last run, without the network's input and output."""
        return int(self._executor["copied_bytes"]())

    @property
    def sharing(self) -> str:
        return str(self._executor["sharing"]())


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
