"""Tunes the kernels of a network: ``python -m tvm_codl.schedule.tune zoo:resnet18 --processor gpu -o gpu.log``.

Each operator starts from its estimated configuration; one knob after another is tried around the best so far.  A
candidate replaces the incumbent only if it wins measured in turn with it, so that a machine's drift decides nothing.
The winner is written as an AutoTVM record, one JSON line.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import tvm
from tvm import autotvm, relay
from tvm.autotvm.measure import MeasureInput, MeasureResult

from tvm_codl.device import opencl
from tvm_codl.errors import CodlError, DeviceError
from tvm_codl.runtime import plugin
from tvm_codl.schedule.target import cpu_target, gpu_target, is_gpu
from tvm_codl.schedule.tiles import VECTOR_REGISTERS
from tvm_codl.schedule.transfer import SHIPPED, read_records, scheduled

GAIN = 0.97  # a candidate must take less than this share of the incumbent's time
SPAN = 0.015  # seconds of one measurement
ROUNDS = 3


class Bench:
    """Builds candidates and times them, in this process or on a phone."""

    def __init__(self, target: tvm.target.Target, session: Any = None) -> None:
        self.target, self.session = target, session
        kind = "opencl" if is_gpu(target) else "cpu"
        if session is None:
            _take_cores(kind)
        self.device = session.device(kind, 0) if session else tvm.device(kind, 0)
        if not self.device.exist:
            raise DeviceError(f"there is no {kind} device to tune on", "", "tvm-codl doctor")

    def build(self, task: autotvm.task.Task, config: Any, folder: Path) -> tuple[Any, list[Any]]:
        with self.target, tvm.transform.PassContext(opt_level=3, config={"tir.disable_cse_tir": True}):
            schedule, args = task.instantiate(config)
            built = tvm.build(schedule, args, self.target)
        path = folder / f"kernel-{config.index}.so"
        built.export_library(str(path))
        if self.session is not None:
            self.session.upload(str(path))
            module = self.session.load_module(path.name)
        else:
            module = tvm.runtime.load_module(str(path))
        shapes = [tuple(int(d) for d in arg.shape) for arg in args]
        random = np.random.default_rng(0)
        arrays = [tvm.nd.array(random.random(shape, dtype="float32") - 0.5, self.device) for shape in shapes]
        return module, arrays

    def seconds(self, built: tuple[Any, list[Any]], number: int) -> float:
        module, arrays = built
        timer = module.time_evaluator(module.entry_name, self.device, number=number, repeat=3)
        return float(min(timer(*arrays).results))


def _take_cores(kind: str) -> None:
    """This process as the reference phone: CPU code on the first core, the GPU's worker on the last."""
    cores = sorted(os.sched_getaffinity(0))
    if kind == "opencl":
        os.environ.update(opencl.environment())
        os.environ.setdefault("CODL_GPU_CORES", str(cores[-1]))
        plugin.load()
    os.sched_setaffinity(0, cores[:1])


def workloads(module: tvm.IRModule, target: tvm.target.Target) -> list[tuple[Any, ...]]:
    """The kernels that building ``module`` for ``target`` asks configurations for."""
    with (
        scheduled(shipped=False) as context,
        tvm.transform.PassContext(opt_level=3, config={"tir.disable_cse_tir": True}),
    ):
        relay.build(module, target)
    return [workload for _, workload in context.seen]


def neighbours(space: Any, best: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Configurations around ``best``: each register tile, then each other knob by itself."""
    tile = [name for name in ("columns", "blocks") if name in space.space_map]
    if tile == ["columns", "blocks"]:
        for columns in _values(space, "columns"):
            for blocks in _values(space, "blocks"):
                if columns * blocks + blocks < VECTOR_REGISTERS:
                    yield {**best, "columns": columns, "blocks": blocks}
    for name in space.space_map:
        if len(tile) == 1 or name not in tile:
            for value in _values(space, name):
                yield {**best, name: value}


def tune_task(task: autotvm.task.Task, bench: Bench) -> tuple[Any, list[float], int]:
    """The best configuration of ``task``, its times in seconds, and how many were tried."""
    space = task.config_space
    best = {name: _values(space, name)[0] for name in space.space_map}  # the estimate is each knob's first value
    tried = {_key(best)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        incumbent = estimate = bench.build(task, _config(space, best), folder)
        first = bench.seconds(incumbent, 1)
        number = max(1, int(SPAN / 3 / max(first, 1e-7)))
        stages = ({"columns", "blocks"}, set(space.space_map) - {"columns", "blocks"})
        for stage in stages:
            for knobs in neighbours(space, dict(best)):
                changed = {k for k in knobs if knobs[k] != best[k]}
                if _key(knobs) in tried or not changed or not changed <= stage:
                    continue
                tried.add(_key(knobs))
                try:
                    challenger = bench.build(task, _config(space, knobs), folder)
                    won = _wins(bench, challenger, incumbent, number)
                except (tvm.TVMError, autotvm.task.space.InstantiationError):
                    continue  # a configuration that does not build is no candidate
                if won:
                    best, incumbent = knobs, challenger
        # Of many candidates one may have been lucky: the winner must beat the estimate once more, for longer.
        if incumbent is not estimate and not _wins(bench, incumbent, estimate, 2 * number, 2 * ROUNDS):
            best, incumbent = {name: _values(space, name)[0] for name in space.space_map}, estimate
        times = [bench.seconds(incumbent, number) for _ in range(ROUNDS)]
    return _config(space, best), times, len(tried)


def _wins(bench: Bench, challenger: Any, incumbent: Any, number: int, rounds: int = ROUNDS) -> bool:
    """Measured in turn; one clear loss ends it."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(bench.seconds(challenger, number))
        theirs.append(bench.seconds(incumbent, number))
        if min(ours) > 1.1 * min(theirs):
            return False
    return min(ours) < GAIN * min(theirs)


def _values(space: Any, name: str) -> list[Any]:
    return [entity.val for entity in space.space_map[name].entities]


def _config(space: Any, knobs: dict[str, Any]) -> Any:
    point = [_values(space, name).index(knobs[name]) for name in space.space_map]
    return space.get(space.knob2point(point))


def _key(knobs: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(knobs.values())


def tune(module: tvm.IRModule, bench: Bench, output: Path, log: Any = None) -> int:
    """Tunes what ``output`` has no record of yet and appends to it; the number of records written."""
    done = {record.workload for _, record in read_records(output)} if output.exists() else set()
    written = 0
    for workload in workloads(module, bench.target):
        if workload in done:
            continue
        task_name, *args = workload
        task = autotvm.task.create(task_name, tuple(args), target=bench.target)
        started = time.time()
        config, times, tried = tune_task(task, bench)
        measured = MeasureInput(bench.target, task, config)
        result = MeasureResult(tuple(times), 0, time.time() - started, time.time())
        with output.open("a") as file:
            file.write(autotvm.record.encode(measured, result) + "\n")
        written += 1
        if log is not None:
            rate = task.flop / min(times) / 1e9
            log(f"{task_name} {args[0][1]} {args[1][1]}: {min(times) * 1e3:.3f} ms, {rate:.0f} GFLOP/s, {tried} tried")
    return written


def _session(tracker: str, key: str) -> Any:
    host, _, port = tracker.partition(":")
    return autotvm.measure.request_remote(key, host, int(port or 9190), timeout=60)


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option("--processor", type=click.Choice(["cpu", "gpu"]), required=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Default: the record that ships with the package."
)
@click.option("--rpc-tracker", default="", help="HOST:PORT; without it, this machine is the phone.")
@click.option("--rpc-key", default="phone")
def main(models: tuple[str, ...], processor: str, output: Path | None, rpc_tracker: str, rpc_key: str) -> None:
    """Tunes the kernels of MODELS for one processor and appends AutoTVM records."""
    from tvm_codl.frontend.load import load_model

    autotvm.GLOBAL_SCOPE.silent = True
    try:
        target = gpu_target() if processor == "gpu" else cpu_target()
        bench = Bench(target, _session(rpc_tracker, rpc_key) if rpc_tracker else None)
        path = output or SHIPPED / f"reference_{processor}.log"
        for model in models:
            written = tune(load_model(model).module, bench, path, lambda text: click.echo(text, err=True))
            click.echo(f"{model}: {written} records appended to {path}")
    except CodlError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
