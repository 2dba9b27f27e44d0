"""Table: workloads as arrays, one row each, from single ones or from :class:`~tvm_codl.records.pieces.Pieces`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tvm_codl.records.pieces import NUMBERS, Pieces, numbers_of
from tvm_codl.records.workload import Workload

Integers = NDArray[np.int64]
Rows = NDArray[np.float64]
_COLUMN = {name: i for i, name in enumerate(NUMBERS)}


class Table(msgspec.Struct, frozen=True):
    """``numbers`` have shape (rows, len(NUMBERS)).

    ``kinds`` and ``axes`` have an entry a row; ``share`` is the part of the cut axis that a row has.
    """

    kinds: NDArray[np.str_]
    axes: NDArray[np.str_]
    numbers: Integers
    share: Rows

    def __len__(self) -> int:
        return len(self.share)

    def __getitem__(self, name: str) -> Integers:
        """The column of that name."""
        return self.numbers[:, _COLUMN[name]]

    def rows(self, at: NDArray[np.intp]) -> Table:
        """The rows at these places."""
        return Table(*(getattr(self, name)[at] for name in self.__struct_fields__))


def table(workloads: Sequence[Workload]) -> Table:
    if isinstance(workloads, Pieces):
        place = np.array(workloads.whole_of, dtype=np.intp)
        kinds = np.array([whole.kind for whole in workloads.wholes] or [""])
        share = workloads.sizes / np.maximum(workloads.extents, 1)
        axes = np.array(workloads.axes, dtype="U12")
        return Table(kinds[place], axes, workloads.numbers, share)
    return Table(
        np.array([w.kind for w in workloads], dtype="U24"),
        np.array([w.cut.axis if w.cut else "" for w in workloads], dtype="U12"),
        numbers_of(workloads),
        np.array([(w.cut.hi - w.cut.lo) / w.cut.extent if w.cut else 1.0 for w in workloads], dtype=np.float64),
    )
