"""Whether a GPU's kernel gives the host's answer, in every one of many runs: a winner is none before that is known.

Wrong answers that depend on the work-group's shape, or that come now and then, are known from phones' drivers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import msgspec
import numpy as np
import tvm
from tvm import autotvm
from tvm.autotvm.task.space import FallbackConfigEntity

from tvm_codl.build.kernel import PASS_CONFIG
from tvm_codl.kernels.target import cpu_target
from tvm_codl.kernels.tuner.builder import Built
from tvm_codl.records.record import ErrorNo

#: Runs in all, at least, and the inputs over which they are spread.
RUNS, INPUTS = 50, 3
#: Arguments of more bytes are the same in all inputs: they take a while to send.
LARGE = 16 << 20
#: A sum of products may be off by this many roundings of its largest product for each of its terms.  A missing term is off
#: by thousands.
ROUNDINGS = 8.0


class Verdict(msgspec.Struct, frozen=True):
    """``error_no`` is 0, :attr:`~ErrorNo.GPU_WRONG` or :attr:`~ErrorNo.GPU_UNSTEADY`; ``words`` are the evidence."""

    error_no: int = 0
    words: str = ""


class HostAnswers:
    """Inputs of a kernel and this computer's answers to them.  ``task`` is a GPU's; made once, it serves all its
    configurations.

    ``place`` is the result's among the arguments, which a template puts there whatever the target.  The order of the
    inputs is the schedule's: they are told apart by their shapes.
    """

    def __init__(self, task: Any, seed: int = 0) -> None:
        """Builds the same task for this computer's CPU and runs it.  Raises what TVM raises where that does not work."""
        target = cpu_target()
        host = autotvm.task.create(task.name, task.args, target)
        with target, tvm.transform.PassContext(opt_level=3, config=PASS_CONFIG):
            schedule, arguments = host.instantiate(FallbackConfigEntity())
            function = tvm.build(schedule, arguments, target)
        shapes = [(tuple(int(x) for x in each.shape), str(each.dtype)) for each in arguments]
        self.place = next(i for i, each in enumerate(arguments) if each.op in schedule.outputs)
        self.result = shapes[self.place]
        self.inputs: list[list[np.ndarray]] = []
        self.wanted: list[np.ndarray] = []
        random = np.random.default_rng(seed)
        answer = tvm.nd.empty(*self.result, device=tvm.cpu())
        for _ in range(INPUTS):
            before = self.inputs[-1] if self.inputs else [None] * len(shapes)
            values = [
                old if old is not None and old.nbytes > LARGE else _values(random, shape, dtype)
                for old, (shape, dtype) in zip(before, shapes, strict=True)
            ]
            given = [tvm.nd.array(value) for value in values]
            given[self.place] = answer
            function(*given)
            self.inputs.append(values)
            self.wanted.append(answer.numpy().astype("float64"))
        self._shapes = shapes
        self.tolerance = _tolerance(task.flop / (2 * prod(self.result[0])), self.result[1])

    def order(self, arguments: Sequence[tuple[Sequence[int], str]]) -> list[int]:
        """For each of a built kernel's arguments, its number here."""
        left = [number for number in range(len(self._shapes)) if number != self.place]
        numbers = []
        for position, (shape, dtype) in enumerate(arguments):
            wanted = (tuple(shape), str(dtype))
            if position == self.place:
                numbers.append(self.place)
            else:
                numbers.append(left.pop(next(i for i, n in enumerate(left) if self._shapes[n] == wanted)))
        return numbers

    def compare(self, number: int, answer: np.ndarray) -> str:
        """Empty where ``answer`` to the inputs of that number is right, else what is wrong."""
        wanted = self.wanted[number]
        off = np.abs(answer.astype("float64") - wanted)
        bad = ~(off <= self.tolerance)  # also where it is no number
        if not bad.any():
            return ""
        at = tuple(int(x) for x in np.argwhere(bad)[0])
        return (
            f"{int(bad.sum())} of {bad.size} values are off by more than {self.tolerance:.1e}, the first at {list(at)}:"
            f" {float(answer[at]):g}, the host has {float(wanted[at]):g}"
        )


def _values(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers up to 1, or all that an integer of the type can be."""
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, size=shape, dtype=dtype, endpoint=True)
    return random.uniform(-1.0, 1.0, size=shape).astype(dtype)


def _tolerance(terms: float, dtype: str) -> float:
    """Of a sum of so many products of numbers up to 1; half-precision sums are kept in float32.  Integers are exact."""
    if np.issubdtype(dtype, np.integer):
        return 0.0
    rounding = float(np.finfo(dtype).eps)
    return ROUNDINGS * rounding * max(1.0, terms if dtype == "float32" else terms**0.5)


def check_answers(phone: Any, module: Any, built: Built, answers: HostAnswers) -> Verdict:
    """Runs a kernel of ``module``, a library that is loaded on the phone, :data:`RUNS` times on its GPU.

    The runs are compared bit by bit on the phone; the first answer to each input comes here.
    """
    compare, gpu = phone.remote.get_function("codl.compare_runs"), phone.gpu
    order, each = answers.order(built.arg_info), ceil(RUNS / INPUTS)
    result = tvm.nd.empty(*answers.result, device=gpu)
    sent: list[tuple[np.ndarray, Any]] = [(np.empty(0), None)] * len(order)
    for number, values in enumerate(answers.inputs):
        # What did not change is there already.
        sent = [
            old if old[0] is values[i] else (values[i], tvm.nd.array(values[i], gpu))
            for i, old in zip(order, sent, strict=True)
        ]
        arguments = [array for _, array in sent]
        arguments[answers.place] = result
        differing = int(compare(module, built.function, *plain_device(gpu), each, answers.place, *arguments))
        if differing:
            words = f"{differing} of {each} runs gave another answer to the same input than the first"
            return Verdict(int(ErrorNo.GPU_UNSTEADY), words)
        if wrong := answers.compare(number, result.numpy()):
            return Verdict(int(ErrorNo.GPU_WRONG), wrong)
    return Verdict()


def time_kernel(
    phone: Any, module: Any, function: str, device: Any, runs: int, repeats: int, arguments: Sequence[Any],
    min_ms: float = 0.0,
) -> list[float]:  # fmt: skip
    """Seconds of one run, by repeat.  A repeat's runs are enqueued one behind the other and waited for once: at least
    ``runs``, and so many that they take ``min_ms``."""
    timer = phone.remote.get_function("codl.time_kernel")
    return list(json.loads(timer(module, function, *plain_device(device), runs, repeats, min_ms, *arguments)))


def plain_device(device: Any) -> tuple[int, int]:
    """Type and number of a session's device as the phone itself has them."""
    return int(device.device_type) % int(tvm.rpc.base.RPC_SESS_MASK), int(device.device_id)
