"""The Python handle on the native co-executor, the same here and over RPC."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import tvm

from tvm_codl.errors import DeviceError, KernelRejected, UserError
from tvm_codl.records.settings import DEFAULT, Settings
from tvm_codl.runtime.about import About, MemoryBytes, PortInfo
from tvm_codl.runtime.error_text import last_line

DEVICE = 0  # the number of the OpenCL device
#: What TVM says where a device's compiler rejects a kernel (src/runtime/opencl/opencl_module.cc).
NOT_BUILT = ("failed to build the program", "CL_INVALID_PROGRAM_EXECUTABLE", "CL_BUILD_PROGRAM_FAILURE")
#: Bytes of a network that leaves nothing in any phone's caches between two runs.
LARGE_NETWORK = 64 << 20


class Switch(msgspec.Struct, frozen=True, rename={"left": "from", "taken": "to"}):
    """A change of plan after ``run`` runs: from plan number ``left`` to ``taken``, why, and the time of each, in ms."""

    run: int
    left: int
    taken: int
    reason: str
    from_ms: float
    to_ms: float


class Adaptation(msgspec.Struct, frozen=True):
    """``plan`` is the number of the next run's plan, ``trials`` the number of tries of other plans, ``calm_ms`` the first
    plan's time on a calm phone (0: unknown yet), ``switches`` the last 64 changes."""

    plan: int
    runs: int
    trials: int
    calm_ms: float
    switches: tuple[Switch, ...] = ()


class Watched(msgspec.Struct, frozen=True):
    """Samples in ms, and what else happened meanwhile: for how many ms threads of the same process waited for a core during
    each, all threads together; and what a short known work took on each core before or after them, whichever is less."""

    ms: tuple[float, ...]
    waited_ms: tuple[float, ...] = ()
    work_ms: tuple[float, ...] = ()


class CoModule:
    """A library loaded on a device.

    ``module`` is the loaded library (``tvm.runtime.load_module`` here, ``remote.load_module`` over RPC) and ``cpu``
    that side's CPU device.  ``sharing`` is auto, svm, mapped or copied.
    Raises :class:`UserError` for a library that is none of ours, :class:`DeviceError` where the device refuses it,
    :class:`KernelRejected` where its OpenCL compiler does.
    """

    def __init__(self, module: tvm.runtime.Module, cpu: Any, sharing: str = "auto") -> None:
        try:
            self.about = msgspec.json.decode(module["about"](), type=About)
            settings = settings_of(self.about)
        except (AttributeError, tvm.error.TVMError, msgspec.DecodeError) as error:
            raise UserError(
                "this library was not built by tvm_codl, or by another version of it",
                last_line(error),
                "tvm-codl build MODEL -o model.so",
            ) from error
        try:
            self._executor = module["create"](DEVICE, sharing)
        except tvm.error.TVMError as error:
            kind = KernelRejected if any(words in str(error) for words in NOT_BUILT) else DeviceError
            raise kind("the device cannot run this library", last_line(error), "tvm-codl doctor") from error
        self._library, self._cpu = module, cpu
        self.settings = DEFAULT
        self.apply(settings)

    def apply(self, settings: Settings) -> None:
        """Changes queue and CPU settings from the next run on; the plan's own apply at the start.  The library fixes the
        GPU's type and memory.

        Raises :class:`DeviceError` for cores that the device lacks, and for more threads than its server allows.
        """
        if settings == self.settings:
            return
        try:
            self._executor["choose_cpu"](settings.cpu_threads, *settings.cpu_cores)
            self._executor["flush_every"](settings.flush_every)
        except tvm.error.TVMError as error:
            raise DeviceError(
                f"the device cannot run with {settings.words()}", last_line(error), "tvm-codl plan MODEL"
            ) from error
        self.settings = settings

    @property
    def cpu_cores(self) -> list[list[int]]:
        """The allowed cores of the main thread during a run, and of each worker thread."""
        return list(json.loads(self._executor["cpu_cores"]()))

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
            self._executor["set_input"](index, tvm.nd.array(np.asarray(value, order="C"), device=self._cpu))

    def get_outputs(self) -> list[np.ndarray]:
        """The last run's outputs, in the model's order and layout."""
        # Plans may hold an output as part of different tensors.
        plans = self.about.plans
        ports = plans[int(self._executor["ran"]())].outputs if plans else self.outputs
        results = []
        for index, port in enumerate(ports):
            stored = tvm.nd.empty(port.shape, port.dtype, device=self._cpu)
            self._executor["get_output"](index, stored)
            value = stored.numpy()
            if port.crop:
                axis, lo, hi = port.crop
                value = np.take(value, np.arange(lo, hi), axis=axis)
            results.append(np.asarray(value, order="C"))  # ascontiguousarray would give a scalar an axis
        return results

    def run(self, inputs: Mapping[str, np.ndarray] | None = None) -> list[np.ndarray]:
        """One run.  Without ``inputs`` it reuses the last ones."""
        if inputs is not None:
            self.set_inputs(inputs)
        self._executor["run"]()
        return self.get_outputs()

    def benchmark(self, number: int = 1, repeat: int = 1) -> list[float]:
        """``repeat`` samples, each the mean of ``number`` runs, in ms, timed on the device."""
        return list(self.watch(number, repeat).ms)

    def watch(self, number: int = 1, repeat: int = 1) -> Watched:
        """As :meth:`benchmark`, with what tells whether the cores were ours: waits and known work, by sample and core."""
        return msgspec.json.decode(self._executor["benchmark"](number, repeat), type=Watched)

    def time_region(
        self, region: int, repeat: int = 3, min_ms: float = 1.0, network_bytes: int = LARGE_NETWORK
    ) -> list[float]:
        """Samples in ms of one region alone on its processor, without waiting for the other.

        Each is the mean over at least ``min_ms`` of runs with warm caches.  With ``min_ms`` 0 it is one run with the
        caches as inside a network of ``network_bytes`` (:func:`tvm_codl.graph.footprint.touched_bytes`): inputs just
        written, the network's other data touched since the last run; on a GPU with memory of its own, one of many such runs
        that follow one another, and no less than without that other data.
        """
        return list(json.loads(self._executor["time_region"](region, repeat, min_ms, network_bytes)))

    def time_region_busy(
        self, region: int, other: int | None = None, repeat: int = 3, min_ms: float = 1.0
    ) -> list[float]:
        """Samples in ms of one region while the other processor repeats the region ``other``; without it that one idles.

        GPU times are by the GPU's own clock: compare idle and busy times of this method, not with :meth:`time_region`.
        Caches are warm.  Raises :class:`DeviceError` where both regions are on one processor, and where ``other`` is too
        short to keep the GPU busy.
        """
        nobody = -1
        try:
            times = self._executor["time_region_busy"](region, nobody if other is None else other, repeat, min_ms)
        except tvm.error.TVMError as error:
            # Over RPC the device's own error is wrapped in an RPCError; any other RPCError is a lost device.
            if isinstance(error, tvm.error.RPCError) and "Error caught from RPC call" not in str(error):
                raise
            raise DeviceError("the device cannot time a region beside another", last_line(error)) from error
        return list(json.loads(times))

    def timeline(self) -> list[dict[str, Any]]:
        """Every kernel, wait and transfer of one run: name, processor, kind, region, start_us, end_us in one clock.

        The CPU's ``share`` events ``feed`` and ``signal`` are enqueueing GPU commands and signalling the GPU.
        """
        return list(json.loads(self._executor["timeline"]()))

    @property
    def adaptation(self) -> Adaptation:
        """What the choice among the library's plans has done since the start."""
        return msgspec.json.decode(self._executor["adaptation"](), type=Adaptation)

    def plan_name(self, number: int) -> str:
        """The name of one of the library's plans; empty for a library of one plan."""
        return self.about.plans[number].name if self.about.plans else ""

    def fix_plan(self, number: int | None) -> None:
        """Runs only that plan from the next run on; None: chooses again.

        Raises :class:`UserError` for a plan that the library does not have.
        """
        plans = len(self.about.plans) or 1
        if number is not None and not 0 <= number < plans:
            raise UserError(f"the library has no plan {number}", f"it has {plans}, counted from 0")
        adapt = -1
        self._executor["fix_plan"](adapt if number is None else number)

    @property
    def copied_bytes(self) -> int:
        """Bytes copied inside the last run, without the network's input and output."""
        return int(self._executor["copied_bytes"]())

    @property
    def memory_bytes(self) -> MemoryBytes:
        """The device memory of this library, all plans together."""
        return msgspec.json.decode(self._executor["memory_bytes"](), type=MemoryBytes)

    @property
    def sharing(self) -> str:
        return str(self._executor["sharing"]())


def settings_of(about: About) -> Settings:
    """The settings of a library's plan.  Raises :class:`msgspec.ValidationError` for those of another version."""
    plan = about.plan if isinstance(about.plan, dict) else {}
    return msgspec.convert(plan.get("settings", {}), Settings)
