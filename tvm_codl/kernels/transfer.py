"""Which configuration a kernel gets while a network is built: measured, taken over from a relative, or estimated.

Splitting makes pieces: the same operator with fewer rows or fewer output channels.  A piece takes the configuration of
the nearest measured operator of its family (same task, window, input channels, stride and width of the output) that was
measured with vectors as wide; the knobs are plain integers and are made legal for the piece by :func:`tvm_codl.kernels.tiles.tiles.fit`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import tvm
from tvm import autotvm
from tvm.autotvm.task.space import FallbackConfigEntity

import tvm_codl.kernels.tuned
from tvm_codl.errors import UserError
from tvm_codl.kernels.schedules.conv2d import TASK as CONV2D
from tvm_codl.kernels.schedules.dense import BATCH_MATMUL, DENSE
from tvm_codl.kernels.schedules.depthwise import TASK as DEPTHWISE
from tvm_codl.kernels.target import KEY, processor_of, vector_lanes
from tvm_codl.kernels.tuned_records import FROM_PACKAGE, FROM_USER, better, distance, placed

TASKS = frozenset((CONV2D, DEPTHWISE, DENSE, BATCH_MATMUL))
SHIPPED = Path(tvm_codl.kernels.tuned.__file__).parent


class Family(msgspec.Struct, frozen=True):
    """What a piece has in common with its operator, and how large it is."""

    common: tuple[Any, ...]
    extents: tuple[int, ...]

    def distance(self, other: Family) -> float:
        return distance(self.extents, other.extents)


class Record(msgspec.Struct, frozen=True):
    """One measured configuration; ``seconds`` is its mean time, ``lanes`` how wide its target's vectors are, and ``rank``
    as in :class:`tvm_codl.kernels.tuned_records.Tuning`."""

    workload: tuple[Any, ...]
    config: Any
    seconds: float
    lanes: int = 0
    rank: int = FROM_USER

    @property
    def family(self) -> Family:
        return family_of(self.workload)


class Scheduled(autotvm.DispatchContext):
    """A dispatch context for our targets; answers every query and never warns.  ``seen`` lists what was asked."""

    def __init__(self, records: Iterable[tuple[str, Record]]) -> None:
        super().__init__()
        self._exact: dict[tuple[str, int, Any], Record] = {}
        self._families: dict[tuple[str, int, Any], list[Record]] = {}
        self._answers: dict[tuple[str, int, Any], Any] = {}
        self.seen: dict[tuple[str, Any], str] = {}
        for processor, record in records:
            key = (processor, record.lanes, record.workload)
            if key not in self._exact or better(record, self._exact[key]):
                self._exact[key] = record
        for (processor, lanes, _), record in self._exact.items():
            self._families.setdefault((processor, lanes, record.family.common), []).append(record)

    def _query_inside(self, target: tvm.target.Target, workload: Any) -> Any:
        if workload is None or workload[0] not in TASKS or KEY not in target.keys:
            return None
        key = _key(target, workload)
        # The compute and the schedule of one kernel ask separately and must hear the same.
        if key not in self._answers:
            processor, _, plain_workload = key
            self._answers[key], self.seen[processor, plain_workload] = self._answer(*key)
        return self._answers[key]

    def _answer(self, processor: str, lanes: int, workload: Any) -> tuple[Any, str]:
        exact = self._exact.get((processor, lanes, workload))
        if exact is not None:
            return exact.config, "measured"
        family = family_of(workload)
        relatives = self._families.get((processor, lanes, family.common), [])
        if relatives:
            nearest = min(relatives, key=lambda record: (family.distance(record.family), record.seconds))
            return nearest.config, "transferred"
        return FallbackConfigEntity(), "estimated"

    def suggestion(self, target: tvm.target.Target, workload: Any) -> Any | None:
        """The measured or transferred configuration for a kernel; None where there is only an estimate."""
        config, how = self._answer(*_key(target, workload))
        return None if how == "estimated" else config

    def update(self, target: tvm.target.Target, workload: Any, cfg: Any) -> None:
        self._answers[_key(target, workload)] = cfg


def _key(target: tvm.target.Target, workload: Any) -> tuple[str, int, Any]:
    return processor_of(target), vector_lanes(target), plain(workload)


@contextmanager
def scheduled(records_paths: Iterable[str | Path] = (), shipped: bool = True) -> Iterator[Scheduled]:
    """The context to build in: the user's records, then those shipped with the package, then estimates.

    Raises :class:`UserError` for a file that is missing or holds a line that is no AutoTVM record.
    """
    records = [*(_of_package(SHIPPED) if shipped else ())]
    records += [one for path in records_paths for one in read_records(Path(path), FROM_USER)]
    was_silent = autotvm.GLOBAL_SCOPE.silent
    autotvm.GLOBAL_SCOPE.silent = True
    try:
        with Scheduled(records) as context:
            yield context
    finally:
        autotvm.GLOBAL_SCOPE.silent = was_silent


@functools.cache
def _of_package(folder: Path) -> tuple[tuple[str, Record], ...]:
    return tuple(one for path in sorted(folder.glob("*.log")) for one in read_records(path, FROM_PACKAGE))


def read_records(path: Path, rank: int = FROM_USER) -> list[tuple[str, Record]]:
    """The successful records in an AutoTVM JSON-lines file that are for kernels and targets of ours."""
    found: list[tuple[str, Record]] = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read tuning records from {path}", str(error), "tvm-codl tune MODEL -o FILE") from error
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            decoded = autotvm.record.decode(line)
        except Exception as error:  # TVM's decoder raises whatever its parts do
            raise UserError(
                f"{path}:{number} is no tuning record", f"{type(error).__name__}: {error}", "remove the line"
            ) from error
        if decoded is None:
            continue  # written by another version of AutoTVM
        measured, result = decoded
        target, workload = measured.target, plain(measured.task.workload)
        if result.error_no == 0 and workload[0] in TASKS and KEY in target.keys:
            seconds = sum(result.costs) / len(result.costs)
            record = Record(workload, measured.config, seconds, vector_lanes(target), rank)
            found.append((processor_of(target), record))
    return found


def family_of(workload: tuple[Any, ...]) -> Family:
    """``workload`` without what a piece may change: rows and output channels."""
    task, *args = workload
    if task != BATCH_MATMUL:
        common, extents, _ = placed(task, args)
        return Family(common, extents)
    (_, x, _), (_, y, _), transpose_a, transpose_b, *_ = args
    k, m = x[1:] if transpose_a else x[:0:-1]
    return Family((task, k, transpose_a, transpose_b), (x[0], m, y[1] if transpose_b else y[2]))


def plain(value: Any) -> Any:
    """Lists as tuples and TVM's integers as Python's, so that a workload read from a file equals one just asked for."""
    if isinstance(value, (tuple, list, tvm.ir.Array)):
        return tuple(plain(v) for v in value)
    return value.value if hasattr(value, "value") else value
