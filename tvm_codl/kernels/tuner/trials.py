"""Trials: every configuration that was measured, in AutoTVM's log and in the record store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import autotvm
from tvm.autotvm.measure import MeasureErrorNo, MeasureInput, MeasureResult

from tvm_codl.errors import UserError
from tvm_codl.kernels.dispatch import plain
from tvm_codl.records.autotvm import kernel_line
from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.store import RecordStore

#: Failures that may be the phone's: the candidate is tried once more.
PASSING = (MeasureErrorNo.RUNTIME_DEVICE, MeasureErrorNo.UNKNOWN_ERROR)

#: Next step for a broken trial in the store, whose rows are never changed.
_LEFT_OUT = (
    "tune with another store: --records FILE; to keep the rest, tvm-codl records export -o all.log, "
    "remove the line there, tvm-codl records import all.log --records FILE"
)

Pair = tuple[MeasureInput, MeasureResult]
Knobs = tuple[tuple[str, Any], ...]


class Trials:
    """The trials of one phone's kernels.  A line that a killed process left half written is removed.

    ``log`` is a file of AutoTVM's JSON lines that grows; ``store`` gets the same.  ``retry_failed`` forgets earlier
    failures.  Raises :class:`UserError` for a log that cannot be read.
    """

    def __init__(
        self,
        log: Path | None,
        store: RecordStore | None,
        device: str = "",
        profile: str = "",
        retry_failed: bool = False,
    ) -> None:
        self.log, self.store, self.device, self.profile = log, store, device, profile
        self._known: dict[tuple[str, Any], dict[Knobs, Pair]] = {}
        # When each failed in a way that may pass: by times, as the log and the store hold the same trials.
        self._passed: dict[tuple[str, Any, Knobs], set[float]] = {}
        if store is not None:
            for record in store.kernels():
                if record.device == device and not (retry_failed and record.error_no):
                    self._remember(*_decoded(kernel_line(record), f"a trial in {store.path}", _LEFT_OUT))
        if log is not None and log.exists():
            for number, line in enumerate(_whole_lines(log), 1):
                if line.strip() and not line.startswith("#"):
                    trial = _decoded(line, f"{log}:{number}", "remove the line, or give another file with -o")
                    if not (retry_failed and trial[1].error_no):
                        self._remember(*trial)

    def keep(self, candidate: MeasureInput, result: MeasureResult) -> None:
        """Called with each result as soon as it is there."""
        self._remember(candidate, result)
        if self.log is not None:
            append(self.log, candidate, result)
        if self.store is not None:
            self.store.add([kernel_record(candidate, result, self.device, self.profile)])

    def find(self, task: Any) -> list[Pair]:
        """The trials of ``task``, with the configurations of its present space."""
        numbers = {knobs_of(task.config_space.get(i)): i for i in legal(task.config_space)}
        key = (str(task.target), plain(task.workload))
        return [
            (MeasureInput(task.target, task, task.config_space.get(numbers[knobs])), result)
            for knobs, (_, result) in self._known.get(key, {}).items()
            if knobs in numbers and (result.error_no not in PASSING or len(self._passed[(*key, knobs)]) > 1)
        ]

    def find_relatives(self, task: Any) -> Iterator[list[Pair]]:
        """The trials of other kernels of the same template and target, kernel by kernel."""
        own = plain(task.workload)
        for (target, workload), trials in self._known.items():
            if target == str(task.target) and workload[0] == own[0] and workload != own:
                yield list(trials.values())

    def _remember(self, candidate: MeasureInput, result: MeasureResult) -> None:
        key, knobs = (str(candidate.target), plain(candidate.task.workload)), knobs_of(candidate.config)
        self._known.setdefault(key, {})[knobs] = (candidate, result)
        if result.error_no in PASSING:
            self._passed.setdefault((*key, knobs), set()).add(float(result.timestamp))


def seconds(result: MeasureResult) -> float:
    """The mean time; infinite for a failure."""
    return float(np.mean(result.costs)) if result.error_no == MeasureErrorNo.NO_ERROR else float("inf")


def legal(space: Any) -> list[int]:
    """The configurations of a space."""
    return [index for index in range(space.range_length) if space.is_index_valid(index)]


def knobs_of(config: Any) -> Knobs:
    return tuple((name, entity.val) for name, entity in config._entity_map.items())


def append(path: Path, candidate: MeasureInput, result: MeasureResult) -> None:
    """One line more in an AutoTVM log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(autotvm.record.encode(candidate, result) + "\n")


def kernel_record(candidate: MeasureInput, result: MeasureResult, device: str, profile: str) -> KernelRecord:
    failed = result.error_no != MeasureErrorNo.NO_ERROR
    return KernelRecord(
        target=str(candidate.target),
        task=candidate.task.name,
        args=json.dumps(candidate.task.args),
        config=json.dumps(candidate.config.to_json_dict()),
        costs=() if failed else tuple(float(x) for x in result.costs),
        error_no=int(result.error_no),
        all_cost=float(result.all_cost),
        timestamp=float(result.timestamp),
        device=device,
        profile=profile,
        tvm_version=tvm.__version__,
    )


def _whole_lines(path: Path) -> list[str]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the trials in {path}", str(error), "give another file with -o") from error
    if text and not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        path.write_text(text)
    return text.splitlines()


def _decoded(line: str, place: str, next: str) -> Pair:
    try:
        pair = autotvm.record.decode(line)
    except Exception as error:  # TVM's decoder raises whatever its parts do
        words = f"{type(error).__name__}: {error}; it begins {line[:80]!r}"
        raise UserError(f"{place} is no tuning record", words, next) from error
    if pair is None:
        raise UserError(f"{place} was written by an AutoTVM that is too old", line[:80], next)
    candidate, result = pair
    # Read from a file a task has no workload and no target yet.
    candidate.task.target = candidate.target
    return candidate, result
