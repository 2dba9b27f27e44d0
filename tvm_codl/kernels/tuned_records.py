"""Which configuration a kernel gets, as data: measured, taken over from a relative, or estimated.

The rule of :mod:`tvm_codl.kernels.transfer`, for many pieces at once and without TVM, so that a cost model knows the
schedule that will run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

import tvm_codl.kernels.tuned
from tvm_codl.errors import UserError

CONV2D, DEPTHWISE, DENSE = "conv2d_nhwc.codl", "depthwise_conv2d_nhwc.codl", "dense.codl"
KEY = "codl"

#: :attr:`Tuning.rank` of the records that ship with the package, and of a user's.
FROM_PACKAGE, FROM_USER = 0, 1

#: A family: what a piece has in common with its operator, all integers.  See :func:`conv2d_family`.
Family = tuple[Any, ...]
Floats = NDArray[np.float64]


class Tuned(Protocol):
    """What decides between two."""

    @property
    def rank(self) -> int: ...
    @property
    def seconds(self) -> float: ...


class Tuning(msgspec.Struct, frozen=True):
    """One tuned kernel: of which family, how large (``extents``: rows, channels), with which knobs, how fast.

    ``exact`` is the rest of what must agree for it to be that very kernel: input rows and the padding above and below.
    ``lanes`` is how wide the vectors are of the target that it was tuned for; it is used for no other.  Of two for one kernel
    that of the higher ``rank`` is used, of equal ranks the faster: the times of two phones cannot be compared.
    """

    processor: str
    family: Family
    extents: tuple[int, int]
    exact: tuple[int, int, int]
    knobs: dict[str, Any]
    seconds: float
    lanes: int = 0
    rank: int = 0


class Tunings(msgspec.Struct, frozen=True):
    """All tuned kernels that a build uses."""

    entries: tuple[Tuning, ...] = ()

    def by_family(self, processor: str, lanes: int) -> dict[Family, list[Tuning]]:
        found: dict[tuple[Any, ...], Tuning] = {}
        for entry in self.entries:
            if (entry.processor, entry.lanes) == (processor, lanes):
                same = (entry.family, entry.extents, entry.exact)
                if same not in found or better(entry, found[same]):
                    found[same] = entry
        families: dict[Family, list[Tuning]] = {}
        for entry in found.values():
            families.setdefault(entry.family, []).append(entry)
        return families


def better(one: Tuned, other: Tuned) -> bool:
    """Which of two for the same kernel is used."""
    return (-one.rank, one.seconds) < (-other.rank, other.seconds)


def nearest(relatives: list[Tuning], rows: Floats, channels: Floats) -> NDArray[np.intp]:
    """Index of the relative whose extents are nearest in ratio; of equals the fastest.  Arrays of shape (pieces,)."""
    order = sorted(range(len(relatives)), key=lambda i: relatives[i].seconds)
    extents = np.log(np.array([relatives[i].extents for i in order], dtype=np.float64))
    apart = np.abs(np.log(rows)[:, None] - extents[None, :, 0]) + np.abs(
        np.log(channels)[:, None] - extents[None, :, 1]
    )
    return np.array(order, dtype=np.intp)[np.argmin(np.round(apart, 12), axis=1)]


def shipped() -> Tunings:
    """The records that ship with the package."""
    return read(sorted(Path(tvm_codl.kernels.tuned.__file__).parent.glob("*.log")))


def read(paths: Iterable[Path], rank: int = FROM_PACKAGE) -> Tunings:
    """The successful records of our kernels in AutoTVM JSON-lines files.

    Raises :class:`UserError` for a file that cannot be read or a line that is no record.
    """
    found: list[Tuning] = []
    for path in paths:
        try:
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read tuning records from {path}", str(error)) from error
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                entry = _entry(json.loads(line), rank)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise UserError(f"{path}:{number} is no tuning record", repr(error), "remove the line") from error
            if entry is not None:
                found.append(entry)
    return Tunings(tuple(found))


def used(paths: Iterable[Path]) -> Tunings:
    """The tuned kernels of a build with these logs: the shipped ones and theirs.  Raises as :func:`read`."""
    return Tunings(shipped().entries + read(paths, FROM_USER).entries)


def _entry(value: Mapping[str, Any], rank: int) -> Tuning | None:
    target, task, args, _ = value["input"]
    keys = next((word[6:].split(",") for word in str(target).split() if word.startswith("-keys=")), [])
    costs, failed = value["result"][0], value["result"][1]
    if failed or KEY not in keys or task not in (CONV2D, DEPTHWISE, DENSE):
        return None
    knobs = {name: setting for name, _, setting in value["config"]["entity"]}
    family, extents, exact = placed(task, args)
    processor = "gpu" if "gpu" in keys else "cpu"
    lanes = next((int(key[1:]) for key in keys if key[:1] == "v" and key[1:].isdigit()), 0)
    return Tuning(processor, family, extents, exact, knobs, sum(costs) / len(costs), lanes, rank)


def placed(task: str, args: Sequence[Any]) -> tuple[Family, tuple[int, int], tuple[int, int, int]]:
    """Family, extents and exact part (:class:`Tuning`) of a kernel, from the arguments of its AutoTVM task."""
    data, weight = args[0][1], args[1][1]
    if task == DENSE:
        lanes = weight[2] if len(weight) == 3 else 0
        return dense_family(data[1], lanes), (data[0], weight[0] * max(1, lanes)), (0, 0, 0)
    (n, h, w, c), (sh, sw), padding, (dh, dw) = data, args[2], args[3], args[4]
    top, left, bottom, right = padding if len(padding) == 4 else (*padding, *padding)
    kh, kw = weight[1:3] if len(weight) == 5 else weight[:2]
    rows = (h + top + bottom - (kh - 1) * dh - 1) // sh + 1
    window = (kh, kw, sh, sw, left, right, dh, dw)
    if task == DEPTHWISE:
        return depthwise_family(n, w, weight[3], *window), (rows, c), (h, top, bottom)
    lanes = weight[4] if len(weight) == 5 else 0
    channels = weight[0] * lanes if lanes else weight[3]
    return conv2d_family(n, w, c, lanes, *window), (rows, channels), (h, top, bottom)


def conv2d_family(batch: int, width: int, channels_in: int, lanes: int, *window: int) -> Family:
    """``lanes`` 0: the weights are not packed.  ``window``: kernel, strides, left and right padding, dilation."""
    return (CONV2D, batch, width, channels_in, lanes, *window)


def depthwise_family(batch: int, width: int, many: int, *window: int) -> Family:
    return (DEPTHWISE, batch, width, many, *window)


def dense_family(depth: int, lanes: int) -> Family:
    return (DENSE, depth, lanes)


def distance(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    """How far apart two kernels of a family are: the sum of the logarithms of their extents' ratios."""
    return sum(abs(math.log(x / y)) for x, y in zip(a, b, strict=True))
