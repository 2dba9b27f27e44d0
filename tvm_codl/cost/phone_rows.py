"""Phone rows: operators of TFLite networks as others measured them on phones' GPUs (Mobile-ML-Benchmark of qed-usc)."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import msgspec

from tvm_codl.errors import UserError

GPU_OPERATORS = "gpu_ops.csv"

#: The file's words for operators, as classes that are learned apart.
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


class PhoneOperator(msgspec.Struct, frozen=True):
    """One operator of one network on one phone's GPU.

    Feature maps are square.  ``kernel_class`` is the GPU delegate's kernel and ``fused`` what it linked behind it,
    both without the node's number in the graph.  ``groups`` is 0 where the operator has none.
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
        """What is held out whole: everything with this shape, whatever is fused behind it, on every phone."""
        sizes = (self.in_hw, self.in_channels, self.out_hw, self.out_channels, self.kernel, self.stride, self.groups)
        return (self.op, *sizes)


def read_phone_operators(folder: Path) -> list[PhoneOperator]:
    """The rows of ``gpu_ops.csv``, in the file's order.

    Raises :class:`UserError` where the folder has no such file, and for a row that is none of these operators.
    """
    path = folder / GPU_OPERATORS
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [_operator(row, number) for number, row in enumerate(csv.DictReader(file), 2)]
    except OSError as error:
        raise UserError(f"{path} cannot be read", str(error), "name the folder that holds the phones' data") from error
    except (KeyError, ValueError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} holds no phones' operators", str(error) or repr(error)) from error


def _operator(row: dict[str, str], number: int) -> PhoneOperator:
    def size(name: str) -> int:
        return 0 if row[name] == "-" else int(row[name])

    try:
        kernel, *fused = (_NODE.sub("", part) for part in row["gpu_kernel"].split("_linked_:_"))
        op, ms = row["op"], float(row["latency_ms"])
        if op not in CLASSES or not 0 < ms < float("inf"):
            raise ValueError(f"operator {op!r} of {ms} ms")
        in_hw, in_channels = size("in_hw"), size("in_channels")
        out_hw, out_channels = size("out_hw"), size("out_channels")
        if op == "mean":  # the file has its channels in the place of its output's height
            out_hw, out_channels = 1, out_hw
        elif op == "depthwise_conv_2d":
            out_channels *= in_channels  # the file has the multiplier there
        return PhoneOperator(
            row["model"],
            row["device"],
            op,
            max(in_hw, 1),
            in_channels,
            max(out_hw, 1),
            out_channels or in_channels,
            size("kernel"),
            size("stride"),
            size("groups"),
            kernel,
            tuple(fused),
            ms,
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"line {number}: {error}") from error
