"""Which configuration a kernel gets: one that was measured for it, one of a relative, or none.  Imports no TVM.

Splitting makes pieces: the same operator with fewer rows or fewer output channels.  A piece takes the configuration of
the nearest measured operator of its family (same task, window, input channels, stride and width of the output) that was
measured with vectors as wide; :mod:`tvm_codl.kernels.tiles` makes it legal for the piece.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

import tvm_codl.kernels.tuned
from tvm_codl.errors import UserError
from tvm_codl.kernels.gpu import kind_in
from tvm_codl.records.record import ErrorNo

CONV2D, DEPTHWISE, DENSE = "conv2d_nhwc.codl", "depthwise_conv2d_nhwc.codl", "dense.codl"
BATCH_MATMUL = "batch_matmul.codl"
#: The same for 8-bit integers.
INTEGER_CONV2D = "conv2d_int8.codl"
#: The same for GPUs with local memory.
LOCAL_CONV2D, LOCAL_DENSE, LOCAL_BATCH_MATMUL = "conv2d_local.codl", "dense_local.codl", "batch_matmul_local.codl"
TASKS = (CONV2D, DEPTHWISE, DENSE, BATCH_MATMUL, INTEGER_CONV2D, LOCAL_CONV2D, LOCAL_DENSE, LOCAL_BATCH_MATMUL)
KEY = "codl"
#: float32 in the widest vector.
WIDEST = 16
#: The logs that ship with the package.
SHIPPED = Path(tvm_codl.kernels.tuned.__file__).parent

#: :attr:`Tuning.rank` of the records that ship with the package, and of a user's.
FROM_PACKAGE, FROM_USER = 0, 1
#: Where a configuration comes from.
ESTIMATED, TRANSFERRED, MEASURED = 0, 1, 2

#: What a piece has in common with its operator, all integers.  See :func:`conv2d_family`.
Family = tuple[Any, ...]
Integers = NDArray[np.int64]


class Place(msgspec.Struct, frozen=True):
    """A kernel among its relatives: its family, its size (``extents``: rows, channels), and the rest of what distinguishes it
    (``exact``: input rows and the padding above and below)."""

    family: Family
    extents: tuple[int, ...]
    exact: tuple[int, int, int] = (0, 0, 0)


class Serves(NamedTuple):
    """Which targets' kernels have one schedule: ``cpu`` or ``gpu``, the width of its vectors, and a GPU's kind."""

    processor: str
    lanes: int
    kind: str = ""


class Tuning(msgspec.Struct, frozen=True):
    """One tuned kernel: its place, its AutoTVM configuration (JSON), how fast it was.

    It is used only for targets that it ``serves``.  Of two for one kernel the one of the higher ``rank`` is used, of
    equal ranks the faster: the times of two phones cannot be compared.  A ``wrong`` one gave wrong or unsteady answers:
    its configuration is used for that kernel no more, whatever other records say.
    """

    serves: Serves
    place: Place
    config: dict[str, Any]
    seconds: float
    rank: int = FROM_PACKAGE
    wrong: bool = False

    @property
    def knobs(self) -> dict[str, Any]:
        return {name: setting for name, _, setting in self.config["entity"]}


class Tunings(msgspec.Struct, frozen=True):
    """All tuned kernels that a build uses."""

    entries: tuple[Tuning, ...] = ()

    def by_family(self, serves: Serves) -> dict[Family, list[Tuning]]:
        """Those for targets like ``serves``, the better of two for one kernel."""
        best: dict[Place, Tuning] = {}
        entries = [entry for entry in self.entries if entry.serves == serves]
        wrong = [(entry.place, entry.knobs) for entry in entries if entry.wrong]
        for entry in entries:
            if (entry.place, entry.knobs) in wrong:
                continue
            if entry.place not in best or better(entry, best[entry.place]):
                best[entry.place] = entry
        families: dict[Family, list[Tuning]] = {}
        for entry in best.values():
            families.setdefault(entry.place.family, []).append(entry)
        return families


def better(one: Tuning, other: Tuning) -> bool:
    """Which of two for the same kernel is used."""
    return (-one.rank, one.seconds) < (-other.rank, other.seconds)


def nearest(relatives: Sequence[Tuning], extents: Integers, exact: Integers) -> tuple[NDArray[np.intp], Integers]:
    """Of kernels of one family the index of the configuration that each gets, and its source.

    That is its own, or that of the nearest relative: by the sum of the logarithms of the extents' ratios; of equals the
    fastest.  ``extents`` and ``exact`` have shape (kernels, ...), as in :class:`Place`.
    """
    order = sorted(range(len(relatives)), key=lambda i: relatives[i].seconds)
    sizes = np.array([relatives[i].place.extents for i in order], dtype=np.int64)
    apart = np.abs(np.log(extents)[:, None, :] - np.log(sizes)[None, :, :]).sum(axis=2)
    others = np.array([relatives[i].place.exact for i in order], dtype=np.int64)
    same = (extents[:, None, :] == sizes[None, :, :]).all(axis=2) & (exact[:, None, :] == others[None, :, :]).all(
        axis=2
    )
    at = np.argmin(np.where(same, -1.0, np.round(apart, 12)), axis=1)
    return np.array(order, dtype=np.intp)[at], np.where(same.any(axis=1), MEASURED, TRANSFERRED)


@functools.cache
def shipped(folder: Path = SHIPPED) -> Tunings:
    """The records that ship with the package."""
    return read(sorted(folder.glob("*.log")), FROM_PACKAGE)


def read(paths: Iterable[Path], rank: int = FROM_USER) -> Tunings:
    """The successful records of our kernels in AutoTVM JSON-lines files, and those with wrong answers.

    Raises :class:`UserError` for a file that cannot be read or a line that is no record.
    """
    entries: list[Tuning] = []
    for path in paths:
        try:
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"cannot read tuning records from {path}", str(error), "tvm-codl tune MODEL -o FILE"
            ) from error
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                entry = _entry(json.loads(line), rank)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise UserError(f"{path}:{number} is no tuning record", repr(error), "remove the line") from error
            if entry is not None:
                entries.append(entry)
    return Tunings(tuple(entries))


def load_tunings(paths: Iterable[Path] = ()) -> Tunings:
    """The tuned kernels of a build with these logs: the shipped ones and theirs.  Raises as :func:`read`."""
    return Tunings(shipped(SHIPPED).entries + read(paths).entries)


def _entry(value: Mapping[str, Any], rank: int) -> Tuning | None:
    target, task, args, _ = value["input"]
    keys = next((word[6:].split(",") for word in str(target).split() if word.startswith("-keys=")), [])
    costs, failed = value["result"][0], value["result"][1]
    wrong = failed in (ErrorNo.GPU_WRONG, ErrorNo.GPU_UNSTEADY)
    if (failed and not wrong) or KEY not in keys or task not in TASKS:
        return None
    lanes = next((int(key[1:]) for key in keys if key[:1] == "v" and key[1:].isdigit()), 0)
    processor, seconds = "gpu" if "gpu" in keys else "cpu", 0.0 if wrong else sum(costs) / len(costs)
    config = value["config"]
    if any(len(knob) != 3 for knob in config["entity"]):
        raise ValueError("the configuration has no knobs")
    return Tuning(Serves(processor, lanes, kind_in(keys, lanes)), place_of(task, args), config, seconds, rank, wrong)


def place_of(task: str, args: Sequence[Any]) -> Place:
    """From the arguments of a kernel's AutoTVM task."""
    place = _place_of(task, args)
    integers = task != INTEGER_CONV2D and args[0][2] in ("int8", "uint8")
    return msgspec.structs.replace(place, family=of_integers(place.family)) if integers else place


def _place_of(task: str, args: Sequence[Any]) -> Place:
    data, weight = args[0][1], args[1][1]
    if task == LOCAL_DENSE:
        return Place((task, data[1]), (data[0], weight[2] if len(weight) == 3 else weight[0]))
    if task == DENSE:
        lanes = weight[2] if len(weight) == 3 else 0
        return Place(dense_family(data[1], dense_lanes(lanes)), (data[0], weight[0] * max(1, lanes)))
    if task in (BATCH_MATMUL, LOCAL_BATCH_MATMUL):
        transpose_a, transpose_b = bool(args[2]), bool(args[3])
        k, m = data[1:] if transpose_a else data[:0:-1]
        extents = (data[0], m, weight[1] if transpose_b else weight[2])
        return Place((task, k, transpose_a, transpose_b), extents, (weight[0], 0, 0))
    (n, h, w, c), (sh, sw), padding, (dh, dw) = data, args[2], args[3], args[4]
    top, left, bottom, right = padding if len(padding) == 4 else (*padding, *padding)
    kh, kw = weight[1:3] if len(weight) > 4 else weight[:2]
    rows = (h + top + bottom - (kh - 1) * dh - 1) // sh + 1
    window = (kh, kw, sh, sw, left, right, dh, dw)
    if task == DEPTHWISE:
        return Place(depthwise_family(n, w, weight[3], *window), (rows, c), (h, top, bottom))
    if task == LOCAL_CONV2D:
        return Place((task, *conv2d_family(n, w, c, 0, *window)[1:]), (rows, weight[3]), (h, top, bottom))
    if task == INTEGER_CONV2D:
        lanes, step = weight[4:] if len(weight) == 6 else (0, 0)
        channels = weight[0] * lanes if lanes else weight[3]
        return Place(integer_conv2d_family(step, n, w, c, lanes, *window), (rows, channels), (h, top, bottom))
    lanes = weight[4] if len(weight) == 5 else 0
    channels = weight[0] * lanes if lanes else weight[3]
    return Place(conv2d_family(n, w, c, lanes, *window), (rows, channels), (h, top, bottom))


def conv2d_family(batch: int, width: int, channels_in: int, lanes: int, *window: int) -> Family:
    """``lanes`` 0: the weights are not packed.  ``window``: kernel, strides, left and right padding, dilation."""
    return (CONV2D, batch, width, channels_in, lanes, *window)


def integer_conv2d_family(step: int, *sizes: int) -> Family:
    """``step``: values that an instruction takes for each sum, 0 where weights are not packed.  ``sizes`` as of
    :func:`conv2d_family`."""
    return (INTEGER_CONV2D, step, *conv2d_family(*sizes)[1:])


def of_integers(family: Family) -> Family:
    """The family of the same kernel for 8-bit integers."""
    return (*family, "int8")


def depthwise_family(batch: int, width: int, many: int, *window: int) -> Family:
    return (DEPTHWISE, batch, width, many, *window)


def dense_lanes(lanes: int) -> int:
    """What a family says of weights (N/v, K, v): 0 where ``lanes`` v are no vector but all that there are, as on phones."""
    return lanes if lanes <= WIDEST else 0


def dense_family(depth: int, lanes: int) -> Family:
    return (DENSE, depth, lanes)
