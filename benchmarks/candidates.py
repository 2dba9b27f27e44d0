"""How many candidates a minute: ``python benchmarks/candidates.py [--processor cpu|gpu] [--candidates N]``.

The same configurations of the same convolutions, measured by AutoTVM's own ``LocalBuilder`` and ``RPCRunner`` and by
``BatchBuilder`` and ``BatchRunner``, in turn, with the same repeats, each on a reference phone of its own behind a
tracker (the other one waits meanwhile).  Both phones' OpenCL drivers start with an empty cache of compiled kernels, as
a new candidate's kernel is new to them.  Prints JSON: candidates a minute, the ratio of each round, and how well the
measured times agree.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from tvm import autotvm
from tvm.autotvm.measure import MeasureInput, create_measure_batch

from tvm_codl.cli.main import main as run_command
from tvm_codl.device.connect import connect
from tvm_codl.device.reference.local import LocalPhone
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.kernels.tuner.builder import BatchBuilder
from tvm_codl.kernels.tuner.runner import BatchRunner
from tvm_codl.runtime import opencl

# input channels, output channels, height = width, window, stride, padding
SHAPES = {
    "3x3 128-128 28": (128, 128, 28, 3, 1, 1),
    "1x1 96-96 40": (96, 96, 40, 1, 1, 0),
    "1x1 384-384 10": (384, 384, 10, 1, 1, 0),
}
REPEATS = {"number": 4, "repeat": 3, "min_repeat_ms": 0}
ROUND = 16


def kernel(shape: tuple[int, ...], target: Any, lanes: int) -> Any:
    channels, out, extent, window, stride, pad = shape
    return autotvm.task.create(
        "conv2d_nhwc.codl",
        (
            ("TENSOR", (1, extent, extent, channels), "float32"),
            ("TENSOR", (out // lanes, window, window, channels, lanes), "float32"),
            (stride, stride), (pad, pad, pad, pad), (1, 1), "float32",
        ),
        target,
    )  # fmt: skip


@contextmanager
def fresh_phone() -> Iterator[Any]:
    """A local phone whose OpenCL driver has compiled nothing yet."""
    variables = opencl.environment()
    with tempfile.TemporaryDirectory() as cache:
        changed = {**variables, "POCL_CACHE_DIR": cache}
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        try:
            with LocalPhone() as phone:
                yield phone
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def measured(option: Any, inputs: list[Any]) -> tuple[float, list[Any]]:
    """Seconds that it took, and the results."""
    batch = create_measure_batch(inputs[0].task, option)
    started = time.perf_counter()
    results = batch(inputs)
    return time.perf_counter() - started, results


def compare(task: Any, options: dict[str, Any], indices: list[int]) -> dict[str, Any]:
    inputs = [MeasureInput(task.target, task, task.config_space.get(index)) for index in indices]
    warm, inputs = inputs[:2], inputs[2:]
    for option in options.values():
        measured(option, warm)
    seconds: dict[str, list[float]] = {name: [] for name in options}
    results: dict[str, list[Any]] = {name: [] for name in options}
    sizes = []
    for start in range(0, len(inputs), ROUND):
        part = inputs[start : start + ROUND]
        sizes.append(len(part))
        names = list(options) if start // ROUND % 2 == 0 else list(options)[::-1]
        for name in names:
            took, found = measured(options[name], part)
            seconds[name].append(took)
            results[name] += found
    times = {
        name: [float(np.mean(r.costs)) if r.error_no == 0 else None for r in found] for name, found in results.items()
    }
    both = [(a, b) for a, b in zip(times["autotvm"], times["tvm_codl"], strict=True) if a and b]
    a, b = (np.array(side) for side in zip(*both, strict=True))
    ratios = [x / y for x, y in zip(seconds["autotvm"], seconds["tvm_codl"], strict=True)]
    return {
        "candidates": sum(sizes),
        "a_minute": {name: round(60 * sum(sizes) / sum(took), 1) for name, took in seconds.items()},
        "ratio": round(sum(seconds["autotvm"]) / sum(seconds["tvm_codl"]), 2),
        "ratio_of_rounds": [round(ratio, 2) for ratio in ratios],
        "failed": {name: sum(x is None for x in found) for name, found in times.items()},
        # Legal candidates of one kernel may differ by little more than the noise; then a correlation says nothing.
        "slowest_to_fastest": round(float(a.max() / a.min()), 2),
        "time_ratio": {
            "median": round(float(np.median(b / a)), 3),
            "p10": round(float(np.quantile(b / a, 0.1)), 3),
            "p90": round(float(np.quantile(b / a, 0.9)), 3),
        },
        "correlation_of_log_times": round(float(np.corrcoef(np.log(a), np.log(b))[0, 1]), 4),
    }


@click.command()
@click.option("--processor", type=click.Choice(["cpu", "gpu", "both"]), default="both", show_default=True)
@click.option("--candidates", "count", default=32, show_default=True, help="Configurations of each convolution.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Also write the JSON to this file.")
def main(processor: str, count: int, output: Path | None) -> None:
    targets = {"cpu": cpu_target(), "gpu": gpu_target()}
    lanes = next(int(key[1:]) for key in targets["cpu"].keys if key[1:].isdigit())
    chosen = ["cpu", "gpu"] if processor == "both" else [processor]
    report: dict[str, Any] = {"repeats": REPEATS, "cores": len(os.sched_getaffinity(0)), "kernels": {}}
    with fresh_phone() as theirs, fresh_phone() as ours, connect(ours.where) as phone:
        place = theirs.where
        options = {
            "autotvm": autotvm.measure_option(
                autotvm.LocalBuilder(timeout=30),
                autotvm.RPCRunner(place.key, place.host, place.port, timeout=30, cooldown_interval=0, **REPEATS),
            ),
            "tvm_codl": autotvm.measure_option(BatchBuilder(), BatchRunner(phone, **REPEATS)),
        }
        for on in chosen:
            for name, shape in SHAPES.items():
                task = kernel(shape, targets[on], lanes)
                space = task.config_space
                legal = [index for index in range(space.range_length) if space.is_index_valid(index)]
                indices = random.Random(0).sample(legal, min(len(legal), count + 2))
                report["kernels"][f"{on} {name}"] = compare(task, options, indices)
                click.echo(f"{on} {name}: {report['kernels'][f'{on} {name}']}", err=True)
    for on in chosen:
        found = [entry for name, entry in report["kernels"].items() if name.startswith(on)]
        ratios = [ratio for entry in found for ratio in entry["ratio_of_rounds"]]
        minutes = {side: sum(e["candidates"] / e["a_minute"][side] for e in found) for side in ("autotvm", "tvm_codl")}
        report[on] = {
            "ratio": round(minutes["autotvm"] / minutes["tvm_codl"], 2),
            "median_of_rounds": round(statistics.median(ratios), 2),
            "least": min(ratios),
            "most": max(ratios),
        }
    text = json.dumps(report, indent=2)
    if output is not None:
        output.write_text(text + "\n")
    click.echo(text)


if __name__ == "__main__":
    run_command(main, "candidates.py")
