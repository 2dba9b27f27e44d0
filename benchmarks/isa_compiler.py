"""The offline compiler for phones' GPUs (``docker/install/isa.sh``): what it makes of one kernel, kept by the kernel's text."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tvm_codl.errors import UserError, WorkplaceError
from tvm_codl.paths import cache_dir

#: What one multiply-add is counted in: the loads beside 128 of them.
FMAS = 128
#: Seconds; the largest kernels take ten.
PATIENCE = 120
_ENTRY = re.compile(r"__kernel (__attribute__\(\(reqd_work_group_size\([^)]*\)\)\) )?void \w+")


class Kernel(msgspec.Struct, frozen=True):
    """One kernel of a network.  ``flops`` are of all its calls in one run, tails that are computed and not stored included.

    ``group`` is the work-group by dimension, ``items`` the work-items of one call.
    """

    name: str
    source: str
    flops: int
    group: tuple[int, int, int]
    items: int


class Judged(msgspec.Struct, frozen=True):
    """One kernel in the instruction set of a GPU.

    ``flops`` of all its calls in one run; ``spills`` registers written to memory and read again; ``occupancy`` the share
    of work-items that a core holds at most; ``fma_share`` of the hottest loop's instructions, ``loads_per_128_fma`` in
    it, both None for a kernel without multiply-adds; ``bound`` what limits that loop; ``group`` work-items by dimension.
    """

    name: str
    flops: int
    spills: int
    occupancy: float
    fma_share: float | None
    loads_per_128_fma: float | None
    bound: str
    group: tuple[int, int, int]


class Compiler:
    """``stats.sh`` in ``folder``.  Raises :class:`UserError` where it is not."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / "stats.sh"
        if not self.script.is_file():
            what = f"{folder} holds no offline compiler"
            raise UserError(what, "looked for stats.sh in it", f"bash docker/install/isa.sh {folder}")

    def judge(self, kernel: Kernel, gpu: str) -> Judged:
        """Raises :class:`WorkplaceError` where the compiler fails."""
        said = self._said(kernel, gpu)
        loop = said.get("hot_loop") or said.get("whole") or {}
        fmas, loads = loop.get("fma", 0), sum(loop.get("loads", {}).values())
        return Judged(
            kernel.name,
            kernel.flops,
            sum(said.get(name, 0) for name in ("spills", "fills", "spilled_dwords", "filled_dwords")),
            said["occupancy"],
            round(fmas / loop["instructions"], 3) if fmas else None,
            round(FMAS * loads / fmas, 2) if fmas else None,
            _bound(loop),
            kernel.group,
        )

    def _said(self, kernel: Kernel, gpu: str) -> dict[str, Any]:
        """The compiler's line on a kernel: kept, or asked for now."""
        group = ", ".join(map(str, kernel.group))
        sized = f"__kernel __attribute__((reqd_work_group_size({group}))) void kernel_of_codl"
        source = _ENTRY.sub(sized, kernel.source)
        size = (self.script.stat().st_size, self.script.stat().st_mtime_ns)
        digest = hashlib.sha256(f"{gpu}\0{size}\0{source}".encode()).hexdigest()[:24]
        kept = cache_dir() / "isa" / f"{digest}.json"
        if not kept.exists():
            line = self._ask(source, gpu)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(line, "utf-8")
        said: dict[str, Any] = json.loads(kept.read_text("utf-8"))
        return said

    def _ask(self, source: str, gpu: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.cl"
            path.write_text(source, "utf-8")
            try:
                done = subprocess.run(
                    [str(self.script), str(path), gpu], capture_output=True, text=True, timeout=PATIENCE, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise WorkplaceError(f"{self.script} does not run", repr(error), f"bash {self.script}") from error
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            words = (done.stderr or "it printed nothing").strip()[-500:]
            raise WorkplaceError(f"the offline compiler failed for {gpu}", words, f"bash {self.script} KERNEL.cl {gpu}")
        # The driver compiles a kernel twice, for launches with an offset and, last, without: ours have none.
        return lines[-1]


def weighted(judged: Sequence[Judged], whole: Sequence[bool]) -> dict[str, Any]:
    """By FLOPs: averages over the kernels that have the figure, ``bound`` as shares.  ``spills`` is the sum, ``group`` the
    share of all kernels, each counted once, that are ``whole``: of at least a warp."""

    def mean(name: str) -> float | None:
        having = [(k.flops, getattr(k, name)) for k in judged if getattr(k, name) is not None]
        total = sum(flops for flops, _ in having)
        return round(sum(flops * value for flops, value in having) / total, 3) if total else None

    total = max(sum(k.flops for k in judged), 1)
    bounds = {k.bound for k in judged if k.flops}
    return {
        "spills": sum(k.spills for k in judged),
        **{name: mean(name) for name in ("occupancy", "fma_share", "loads_per_128_fma")},
        "bound": {b: round(sum(k.flops for k in judged if k.bound == b) / total, 3) for b in sorted(bounds)},
        "group": round(sum(whole) / max(len(whole), 1), 3),
    }


def _bound(loop: dict[str, Any]) -> str:
    """The compiler's word on Mali; on Adreno, for which it has no cycles, the largest part of the instructions."""
    if "bound" in loop or not loop:
        return str(loop.get("bound", ""))
    loads, stores = sum(loop["loads"].values()), sum(loop["stores"].values())
    rest = loop["instructions"] - loop["fma"] - loop["nops"] - loads - stores
    parts = {"fma": loop["fma"], "memory": loads + stores, "waits": loop["nops"], "other": rest}
    return max(parts, key=lambda name: parts[name])
