"""Are schedules that a piece takes over from its operator better than estimates?  ``python benchmarks/transfer.py``.

For convolutions with a shipped tuned record: a piece of the rows and one of the channels, each with the configuration
that a network's build would give it (taken over from the nearest measured relative) and with the estimated one,
measured in turn on the reference phone.  Pieces for which both come to the same kernel are counted, not measured.
Prints JSON: estimate's time over the taken-over one's, so more than 1 is a gain.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import click
import tvm
from tvm import autotvm
from tvm.autotvm.measure import MeasureInput, create_measure_batch

from tvm_codl.cli.main import main as run_command
from tvm_codl.device.connect import connect
from tvm_codl.kernels.dispatch import plain, scheduled
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.kernels.reuse import SHIPPED
from tvm_codl.kernels.schedules.conv2d import TASK
from tvm_codl.kernels.tuner.builder import BatchBuilder
from tvm_codl.kernels.tuner.runner import BatchRunner

ROUNDS = 5


def pieces(workload: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    """The upper two fifths of the rows, and half of the channels."""
    name, (tag, (n, h, w, c), dtype), (_, kernel, _), strides, padding, *rest = workload
    found = {}
    if h >= 10 and len(padding) == 4:
        top, left, _, right = padding
        data = (tag, (n, 2 * h // 5, w, c), dtype)
        found["rows"] = (name, data, (tag, kernel, dtype), strides, (top, left, 0, right), *rest)
    if len(kernel) == 5 and kernel[0] >= 2:
        half = (tag, (kernel[0] // 2, *kernel[1:]), dtype)
        found["channels"] = (name, (tag, (n, h, w, c), dtype), half, strides, padding, *rest)
    return found


def lowered(task: Any, config: Any) -> tvm.IRModule:
    """What becomes of a configuration once its tiles are made legal for the piece."""
    with task.target:
        return tvm.lower(*task.instantiate(config), name="piece")


def compare(task: Any, config: Any, builder: BatchBuilder, runner: BatchRunner) -> float | None:
    """The estimate's time over the time with ``config``; None where one of them does not run."""
    create_measure_batch(task, autotvm.measure_option(builder, runner))
    inputs = [MeasureInput(task.target, task, one) for one in (task.config_space.get(0), config)]
    times = runner.interleaved(inputs, builder.build(inputs), ROUNDS)
    return min(times[0]) / min(times[1]) if all(times) else None


@click.command()
@click.option("--limit", default=16, show_default=True, help="Pieces measured on each processor.")
def main(limit: int) -> None:
    targets = {"cpu": cpu_target(), "gpu": gpu_target()}
    report: dict[str, Any] = {}
    with connect() as phone, scheduled() as context:
        builder = BatchBuilder()
        runner = BatchRunner(phone, number=1, repeat=3, min_repeat_ms=5)
        for processor, target in targets.items():
            ratios: dict[str, list[float]] = {"rows": [], "channels": []}
            same = 0
            records = autotvm.record.load_from_file(str(SHIPPED / f"reference_{processor}.log"))
            cases = [
                (axis, piece)
                for one, result in records
                if result.error_no == 0 and one.task.name == TASK
                for axis, piece in pieces((TASK, *plain(one.task.args))).items()
            ]
            for axis, piece in cases[:: max(1, len(cases) // (2 * limit))]:
                task = autotvm.task.create(piece[0], piece[1:], target)
                config = context.suggestion(target, piece)
                if config is None or sum(map(len, ratios.values())) >= limit:
                    continue
                if tvm.ir.structural_equal(lowered(task, config), lowered(task, task.config_space.get(0))):
                    same += 1
                    continue
                ratio = compare(task, config, builder, runner)
                if ratio is not None:
                    ratios[axis].append(round(ratio, 3))
            every = sorted(r for found in ratios.values() for r in found)
            report[processor] = {
                "same_kernel": same,
                "median": statistics.median(every) if every else None,
                "least": every[:1],
                "worse_than_estimate_by_5_per_cent": sum(r < 0.95 for r in every),
                "gain_by_5_per_cent": sum(r > 1.05 for r in every),
                **ratios,
            }
            click.echo(f"{processor}: {report[processor]}", err=True)
    click.echo(json.dumps(report, indent=2))


if __name__ == "__main__":
    run_command(main, "transfer.py")
