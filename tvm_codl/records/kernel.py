"""KernelRecord: one AutoTVM trial, a configuration of a kernel and its time on one device."""

from __future__ import annotations

import msgspec

from tvm_codl.records.canonical import dump, parse
from tvm_codl.records.record import ErrorNo, Processor, check_times


class KernelRecord(msgspec.Struct, frozen=True):
    """The fields of a line of AutoTVM's log (tvm/autotvm/record.py), and the device that it was measured on.

    ``target`` is TVM's text of the target, ``task`` the name of the AutoTVM task, ``args`` its arguments as a JSON list
    and ``config`` the configuration as a JSON object, as ``ConfigEntity.to_json_dict`` gives it; both are made canonical.
    ``costs`` are seconds, one mean for each repeat; none if ``error_no`` (:class:`ErrorNo`) is not zero.  ``all_cost`` is
    the duration of the whole trial in seconds, ``timestamp`` Unix time.  ``device`` and ``profile`` are as in a
    :class:`~tvm_codl.records.record.Record`; both are empty for records that came from elsewhere.

    Raises :class:`ValueError` for arguments or a configuration of other JSON, a success without finite costs, and an
    unknown error number.
    """

    target: str
    task: str
    args: str
    config: str
    costs: tuple[float, ...]
    error_no: int = 0
    all_cost: float = 0.0
    timestamp: float = 0.0
    device: str = ""
    profile: str = ""
    tvm_version: str = ""

    def __post_init__(self) -> None:
        args, config = parse(self.args), parse(self.config)
        if not isinstance(args, list) or not isinstance(config, dict):
            raise ValueError("args are no JSON list or config is no JSON object")
        # AutoTVM writes 1e9 seconds for a failure; drop them.
        costs = () if self.error_no else self.costs
        if not self.error_no and not costs:
            raise ValueError("a success has costs")
        check_times((*costs, self.all_cost, self.timestamp))
        if not self.target.strip() or not self.task:
            raise ValueError("no target or no task")
        canonical = {
            "args": dump(args),
            "config": dump(config),
            "costs": costs,
            "error_no": int(ErrorNo(self.error_no)),
        }
        for name, value in canonical.items():
            msgspec.structs.force_setattr(self, name, value)

    @property
    def ok(self) -> bool:
        return not self.error_no

    @property
    def seconds(self) -> float:
        """Mean of the costs, as AutoTVM compares records; infinite for a failure."""
        return sum(self.costs) / len(self.costs) if self.ok else float("inf")

    @property
    def processor(self) -> Processor:
        """By the target's kind: LLVM and C make code for the CPU, all others for a GPU."""
        return "cpu" if self.target.split()[0] in ("llvm", "c") else "gpu"
