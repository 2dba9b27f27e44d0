"""BatchBuilder: AutoTVM's builder for many configurations of one kernel.

Several make one library, each a function of its own: it is linked, sent and loaded once.  Libraries are built in forked
processes, which have everything in memory already.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tvm
from tvm.autotvm.measure import MeasureErrorNo, MeasureInput, MeasureResult
from tvm.autotvm.measure.measure import Builder
from tvm.autotvm.measure.measure_methods import BuildResult
from tvm.autotvm.task.space import InstantiationError
from tvm.topi.utils import get_const_tuple

from tvm_codl.build.kernel import PASS_CONFIG, generate_code
from tvm_codl.build.library import export
from tvm_codl.build.pool import build_all
from tvm_codl.runtime.error_text import last_line

#: Configurations that a tuner proposes at once, and the most that make one library.
BATCH, TOGETHER = 16, 8
_ILLEGAL = MeasureErrorNo.INSTANTIATION_ERROR

Compile = Callable[..., Any]


class Built(BuildResult):
    """An AutoTVM build result whose library holds other configurations too: this one is ``function``."""

    function: str


class _Part(msgspec.Struct, frozen=True):
    """One configuration of a library: its arguments as (shape, type), or why it is not in it."""

    function: str
    arguments: tuple[tuple[tuple[int, ...], str], ...] = ()
    failure: int = 0
    error: str = ""


class BatchBuilder(Builder):
    """Builds what a tuner proposes: ``autotvm.measure_option(builder=BatchBuilder(), runner=BatchRunner(phone))``.

    ``timeout`` seconds are allowed for each configuration; ``batch`` is how many a tuner proposes at once; ``fcompile`` links
    a library (``ndk.create_shared`` for a phone; the host's compiler by default).
    """

    def __init__(
        self,
        timeout: float = 30.0,
        batch: int = BATCH,
        workers: int = 0,
        fcompile: Compile | None = None,
    ) -> None:
        super().__init__(timeout, batch)
        self.workers, self.fcompile = workers, fcompile
        self.build_kwargs: Mapping[str, Any] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._count = 0

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[Built | MeasureResult]:
        """One result for each input, in their order.  The libraries last until the next call."""
        self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="tvm_codl-kernels-", ignore_cleanup_errors=True)
        results: dict[int, Built | MeasureResult] = {}
        workers = self.workers or len(os.sched_getaffinity(0))
        numbers = list(range(len(measure_inputs)))
        size = max(1, min(TOGETHER, -(-len(numbers) // workers)))
        groups: list[Sequence[int]] = [numbers[a : a + size] for a in range(0, len(numbers), size)]
        while groups:
            groups = self._build(groups, measure_inputs, results)
        return [results[i] for i in numbers]

    def close(self) -> None:
        """Removes the libraries of the last call."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _build(
        self,
        groups: Sequence[Sequence[int]],
        inputs: Sequence[MeasureInput],
        results: dict[int, Built | MeasureResult],
    ) -> list[Sequence[int]]:
        """Builds each group as one library; returns the halves of those that failed, to be tried again."""
        assert self._folder is not None
        places = [Path(self._folder.name) / f"kernels-{self._count + i}.so" for i in range(len(groups))]
        self._count += len(groups)
        checks = dict(self.build_kwargs.get("checks", {}).get("gpu", {}))

        def build(index: int) -> Path:
            return _library([inputs[i] for i in groups[index]], places[index], checks, self.fcompile)

        again: list[Sequence[int]] = []
        started = time.monotonic()
        limits = [self.timeout * len(group) for group in groups]
        for index, outcome in build_all(len(groups), build, self.workers, limits.__getitem__):
            group, each_s = groups[index], (time.monotonic() - started) / len(groups[index])
            if outcome.path is not None:
                parts = msgspec.json.decode(outcome.path.read_bytes(), type=list[_Part])
                for i, part in zip(group, parts, strict=True):
                    results[i] = _result(part, places[index], each_s)
            elif len(group) == 1:
                results[group[0]] = failed(int(outcome.failure), outcome.error, each_s)
            else:
                half = len(group) // 2
                again += [group[:half], group[half:]]
        return again


def failed(number: int, error: BaseException | str, seconds: float) -> MeasureResult:
    """AutoTVM's result of a candidate that has no times: its costs are a trace and an error."""
    error = RuntimeError(error) if isinstance(error, str) else error
    return MeasureResult(("", error), number, seconds, time.time())


def _library(inputs: Sequence[MeasureInput], path: Path, checks: Mapping[str, int], fcompile: Compile | None) -> Path:
    """Builds ``inputs`` into ``path``; returns a file beside it with a :class:`_Part` of each."""
    functions: dict[Any, Any] = {}
    parts = []
    for number, candidate in enumerate(inputs):
        name = f"candidate_{number}"
        try:
            lowered, arguments = _lower(candidate, name, checks)
        except Exception as error:  # a schedule raises whatever it likes
            illegal = isinstance(error, InstantiationError)
            parts.append(_Part(name, (), _ILLEGAL if illegal else MeasureErrorNo.COMPILE_HOST, last_line(error)))
            continue
        functions.update(lowered.functions)
        parts.append(_Part(name, tuple((tuple(get_const_tuple(x.shape)), str(x.dtype)) for x in arguments)))
    if functions:
        target = inputs[0].target
        with target, tvm.transform.PassContext(opt_level=3, config=PASS_CONFIG):
            target = target if target.host else target.with_host(target)
            module = generate_code(tvm.IRModule(functions), target)
        export(module, path, fcompile)
    about = path.with_suffix(".json")
    about.write_bytes(msgspec.json.encode(parts))
    return about


def _lower(candidate: MeasureInput, name: str, checks: Mapping[str, int]) -> tuple[tvm.IRModule, Any]:
    """TIR of one configuration.  Raises :class:`InstantiationError` where it is illegal or over the device's limits."""
    with candidate.target, tvm.transform.PassContext(opt_level=3, config=PASS_CONFIG):
        schedule, arguments = candidate.task.instantiate(candidate.config)
        if not candidate.config.valid():
            raise InstantiationError(str(candidate.config.errors))
        lowered = tvm.lower(schedule, arguments, name=name)
    if checks and not all(tvm.tir.analysis.verify_gpu_code(f, dict(checks)) for f in lowered.functions.values()):
        raise InstantiationError(f"over a limit of the device: {dict(checks)}")
    return lowered, arguments


def _result(part: _Part, path: Path, seconds: float) -> Built | MeasureResult:
    if part.error:
        kind = InstantiationError if part.failure == _ILLEGAL else RuntimeError
        return failed(part.failure, kind(part.error), seconds)
    built = Built(str(path), part.arguments, None, seconds)
    built.function = part.function
    return built
