"""The AutoTVM context in which networks are built: it answers by the rule of :mod:`tvm_codl.kernels.reuse`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import autotvm
from tvm.autotvm.task.space import ConfigEntity, FallbackConfigEntity

from tvm_codl.kernels import reuse
from tvm_codl.kernels.reuse import ESTIMATED, KEY, TASKS, Family, Serves, Tuning, Tunings, place_of
from tvm_codl.kernels.target import gpu_of, is_gpu, processor_of, vector_lanes

SOURCES = ("estimated", "transferred", "measured")


class Scheduled(autotvm.DispatchContext):
    """A dispatch context for our targets; answers every query and never warns.  ``seen`` lists what was asked."""

    def __init__(self, tunings: Tunings) -> None:
        super().__init__()
        self._tunings = tunings
        self._families: dict[Serves, dict[Family, list[Tuning]]] = {}
        self._answers: dict[tuple[Serves, Any], Any] = {}
        self.seen: dict[tuple[str, Any], str] = {}

    def _query_inside(self, target: tvm.target.Target, workload: Any) -> Any:
        if workload is None or workload[0] not in TASKS or KEY not in target.keys:
            return None
        key = key_of(target, workload)
        # The compute and the schedule of one kernel ask separately and must hear the same.
        if key not in self._answers:
            serves, plain_workload = key
            self._answers[key], source = self._answer(*key)
            self.seen[serves.processor, plain_workload] = SOURCES[source]
        return self._answers[key]

    def _answer(self, serves: Serves, workload: Any) -> tuple[Any, int]:
        place = place_of(workload[0], workload[1:])
        if serves not in self._families:
            self._families[serves] = self._tunings.by_family(serves)
        relatives = self._families[serves].get(place.family)
        if not relatives:
            return FallbackConfigEntity(), ESTIMATED
        index, source = reuse.nearest(relatives, np.array([place.extents]), np.array([place.exact]))
        return ConfigEntity.from_json_dict(relatives[index[0]].config), int(source[0])

    def suggestion(self, target: tvm.target.Target, workload: Any) -> Any | None:
        """The measured or transferred configuration for a kernel; None where there is only an estimate."""
        config, source = self._answer(*key_of(target, workload))
        return None if source == ESTIMATED else config

    def update(self, target: tvm.target.Target, workload: Any, cfg: Any) -> None:
        self._answers[key_of(target, workload)] = cfg


def key_of(target: tvm.target.Target, workload: Any) -> tuple[Serves, Any]:
    """What tells one kernel from all others: the targets that it serves, and its workload."""
    kind = gpu_of(target).kind if is_gpu(target) else ""
    return Serves(processor_of(target), vector_lanes(target), kind), plain(workload)


@contextmanager
def scheduled(records_paths: Iterable[str | Path] = (), shipped: bool = True) -> Iterator[Scheduled]:
    """The context to build in: the user's records, then those shipped with the package, then estimates.

    Raises :class:`UserError` for a file that is missing or holds a line that is no AutoTVM record.
    """
    tunings = (reuse.load_tunings if shipped else reuse.read)(map(Path, records_paths))
    was_silent = autotvm.GLOBAL_SCOPE.silent
    autotvm.GLOBAL_SCOPE.silent = True
    try:
        with Scheduled(tunings) as context:
            yield context
    finally:
        autotvm.GLOBAL_SCOPE.silent = was_silent


def plain(value: Any) -> Any:
    """Lists as tuples and TVM's integers as Python's, so that a workload read from a file equals one just asked for."""
    if isinstance(value, (tuple, list, tvm.ir.Array)):
        return tuple(plain(v) for v in value)
    return value.value if hasattr(value, "value") else value
