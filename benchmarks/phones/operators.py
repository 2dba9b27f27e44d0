"""Phone operators: operators of TFLite networks measured on phones' GPUs (Mobile-ML-Benchmark of qed-usc)."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from tvm_codl.errors import UserError

GPU_OPERATORS = "gpu_ops.csv"
NETWORKS = "models_e2e.csv"
#: The file's operators by the class that is learned separately.
CLASSES = {
    "conv_2d": "conv",
    "depthwise_conv_2d": "depthwise",
    "conv_2d_group": "group",
    "fully_connected": "dense",
    "max_pool_2d": "pooling",
    "average_pool_2d": "pooling",
    "mean": "mean",
    "concatenation": "concatenation",
}
_NODE = re.compile(r"(_\d+)+$")
T = TypeVar("T")


class PhoneOperator(msgspec.Struct, frozen=True):
    """One operator of one network on one phone's GPU.  Feature maps are square.

    ``kernel_class`` is the GPU delegate's kernel and ``fused`` what it linked behind it, both without node numbers.
    """

    model: str
    device: str
    op: str
    in_hw: int
    in_channels: int
    out_hw: int
    out_channels: int
    kernel: int
    stride: int
    groups: int
    kernel_class: str
    fused: tuple[str, ...]
    ms: float

    @property
    def op_class(self) -> str:
        return CLASSES[self.op]

    @property
    def shape(self) -> tuple[str | int, ...]:
        """What is held out whole, whatever is fused behind it."""
        sizes = (self.in_hw, self.in_channels, self.out_hw, self.out_channels, self.kernel, self.stride, self.groups)
        return (self.op, *sizes)


def read_phone_operators(folder: Path) -> list[PhoneOperator]:
    """The rows of ``gpu_ops.csv``, in order.  Raises as :func:`read_rows`."""
    return read_rows(folder / GPU_OPERATORS, _operator)


def read_network_times(folder: Path) -> dict[tuple[str, str], float]:
    """Milliseconds on the GPU by (phone, network), from ``models_e2e.csv``.  Raises as :func:`read_rows`."""
    rows = read_rows(folder / NETWORKS, lambda row: (row["processor"], row["device"], row["model"], _ms(row)))
    return {(device, model): ms for processor, device, model, ms in rows if processor == "gpu"}


def read_rows(path: Path, read: Callable[[dict[str, str]], T]) -> list[T]:
    """Each row of a CSV file through ``read``.

    Raises :class:`UserError` for a missing file, and with its line for a row that ``read`` cannot take.
    """
    found, line = [], 1
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            for row in reader:
                line = reader.line_num
                found.append(read(row))
    except OSError as error:
        raise UserError(f"{path} cannot be read", str(error), "name the folder that holds the measurements") from error
    except (KeyError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise UserError(f"{path} is not such a file", f"line {line}: {error!r}") from error
    return found


def _operator(row: dict[str, str]) -> PhoneOperator:
    def size(name: str) -> int:
        return 0 if row[name] == "-" else int(row[name])

    op = row["op"]
    if op not in CLASSES:
        raise ValueError(f"operator {op!r}")
    kernel, *fused = (_NODE.sub("", part) for part in row["gpu_kernel"].split("_linked_:_"))
    in_channels, out_hw, out_channels = size("in_channels"), size("out_hw"), size("out_channels")
    if op == "mean":  # the file has its channels in place of its output's height
        out_hw, out_channels = 1, out_hw
    elif op == "depthwise_conv_2d":
        out_channels *= in_channels  # the file has the multiplier there
    sizes = (max(size("in_hw"), 1), in_channels, max(out_hw, 1), out_channels or in_channels)
    window = (max(size("kernel"), 1), max(size("stride"), 1), max(size("groups"), 1))
    return PhoneOperator(row["model"], row["device"], op, *sizes, *window, kernel, tuple(fused), _ms(row))


def _ms(row: dict[str, str]) -> float:
    ms = float(row["latency_ms"])
    if not 0 < ms < float("inf"):
        raise ValueError(f"a time of {ms} ms")
    return ms
