"""What a busy CPU costs a fixed plan and a library that adapts: ``python benchmarks/adaptive.py MODEL... [--json]``.

On the local reference phone, again and again: calm, then a competing process pinned to the CPU's cores (one busy loop for
each), then calm once more; the fixed plan and the adaptive library take turns, whole phases each, and begin in turn.  Both are
one library: the fixed plan is its first choice, fixed.  The cost of busyness is the busy phases' median run less the calm
phases' (before the process), and ``means`` the same of means, in which the time until the switch counts.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from tvm_codl.api import connect
from tvm_codl.cli.main import main as run_command
from tvm_codl.cli.options import measuring_options
from tvm_codl.cli.output import print_json, talk
from tvm_codl.device.cores import split_cores
from tvm_codl.frontend.load import load_model
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.interleave import calm_down
from tvm_codl.measure.learning import learn
from tvm_codl.measure.planning import validate_adaptive
from tvm_codl.plan.adaptive import adaptive_plans
from tvm_codl.relay.pipeline import prepare
from tvm_codl.report.statistics import Statistics
from tvm_codl.runtime.comodule import CoModule

COMPETITOR = """
import os, sys
core, parent = int(sys.argv[1]), int(sys.argv[2])
os.sched_setaffinity(0, {core})
print("busy", flush=True)
while os.getppid() == parent:
    for _ in range(10**6):
        pass
"""


@contextlib.contextmanager
def competing(cores: tuple[int, ...]) -> Iterator[None]:
    """A process that only counts, on each of the cores.  They end with the block, and with this process."""
    started: list[subprocess.Popen[str]] = []
    try:
        for core in cores:
            line = [sys.executable, "-c", COMPETITOR, str(core), str(os.getpid())]
            started.append(subprocess.Popen(line, stdout=subprocess.PIPE, text=True))
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "busy":
                raise click.ClickException("the competing process does not start")
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def phase(module: CoModule, seconds: float) -> list[float]:
    """The times of the runs of so many seconds, in ms."""
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        times += module.benchmark(1, 8)
    return times


def one_turn(module: CoModule, seconds: float, cores: tuple[int, ...]) -> dict[str, Any]:
    """Calm, busy and calm again; and how long the first change of plan took after each change of the phone."""
    calm = phase(module, seconds)
    before_busy = module.adaptation.runs
    with competing(cores):
        busy = phase(module, seconds)
    before_calm = module.adaptation.runs
    again = phase(module, seconds)
    switches = module.adaptation.switches
    left = [s for s in switches if s.left == 0 and before_busy < s.run <= before_calm]
    back = [s for s in switches if s.taken == 0 and s.run > before_calm]
    return {
        "calm": calm,
        "busy": busy,
        "again": again,
        "switch_ms": sum(busy[: left[0].run - before_busy]) if left else None,
        "return_ms": sum(again[: back[0].run - before_calm]) if back else None,
        "taken": [module.plan_name(s.taken) for s in switches if s.run > before_busy],
        "ended_with": module.plan_name(module.adaptation.plan),
    }


def compare(module: CoModule, rounds: int, seconds: float) -> dict[str, Any]:
    cores = split_cores()[0]
    turns: dict[str, list[dict[str, Any]]] = {"fixed": [], "adaptive": []}
    calm_down()
    for number in range(rounds):
        order = ("fixed", "adaptive") if number % 2 == 0 else ("adaptive", "fixed")
        for name in order:
            module.fix_plan(0 if name == "fixed" else None)
            module.benchmark(1, 10)
            turns[name].append(one_turn(module, seconds, cores))
            talk(f"{name}: {words(turns[name][-1])}")
    result: dict[str, Any] = {}
    for name, taken in turns.items():
        every = {key: [ms for turn in taken for ms in turn[key]] for key in ("calm", "busy", "again")}
        result[name] = {key: msgspec.to_builtins(Statistics.of(times)) for key, times in every.items()}
        costs = [float(np.median(turn["busy"]) - np.median(turn["calm"])) for turn in taken]
        result[name]["cost_ms"] = {
            "median": float(np.median(every["busy"]) - np.median(every["calm"])),
            "mean": float(np.mean(every["busy"]) - np.mean(every["calm"])),
            "of_rounds": costs,
        }
    fixed, adaptive = (result[name]["cost_ms"] for name in ("fixed", "adaptive"))
    by_round = [a / f for a, f in zip(adaptive["of_rounds"], fixed["of_rounds"], strict=True)]
    result["cost_ratio"] = {
        "median": adaptive["median"] / fixed["median"],
        "mean": adaptive["mean"] / fixed["mean"],
        "lowest": min(by_round),
        "highest": max(by_round),
    }
    for key in ("switch_ms", "return_ms"):
        result[key] = [turn[key] for turn in turns["adaptive"]]
    result["taken"] = [turn["taken"] for turn in turns["adaptive"]]
    return result


def words(turn: dict[str, Any]) -> str:
    medians = ", ".join(f"{key} {np.median(turn[key]):.2f} ms" for key in ("calm", "busy", "again"))
    return f"{medians}; took {', '.join(turn['taken']) or 'no other plan'}"


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL_OR_LIBRARY...")
@measuring_options
@click.option("--rounds", type=click.IntRange(1), default=4, show_default=True, help="Turns of each.")
@click.option("--seconds", type=click.FloatRange(0.5), default=3.0, show_default=True, help="Of each phase.")
@click.option("--json", "as_json", is_flag=True)
def main(
    models: tuple[str, ...], budget: float, records: Path | None, tuning_records: Path | None,
    rounds: int, seconds: float, as_json: bool,
) -> None:  # fmt: skip
    results = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        connect(records=records, tuning_records=tuning_records, log=talk) as session,
    ):
        for source in models:
            path, inputs = Path(source), None
            if not source.endswith(".so"):
                prepared = prepare(load_model(source))
                guided, problem = learn(prepared, session, Budget(seconds=budget))
                plans = validate_adaptive(prepared, adaptive_plans(problem, guided.plan), session)
                path = Path(folder) / f"{prepared.name}.so"
                session.build(prepared, guided.plan, path, plans)
                inputs = prepared.model.sample_inputs()
            module = session.open(path)
            random = np.random.default_rng(0)
            module.run(inputs or {p.name: random.random(p.shape).astype(p.dtype) for p in module.inputs})
            name = path.stem
            results[name] = compare(module, rounds, seconds)
            if not as_json:
                click.echo(f"{name}: {table(results[name])}")
    if as_json:
        print_json(results)


def table(one: dict[str, Any]) -> str:
    lines = []
    for name in ("fixed", "adaptive"):
        got, cost = one[name], one[name]["cost_ms"]
        spread = f"{min(cost['of_rounds']):.1f} to {max(cost['of_rounds']):.1f}"
        lines.append(
            f"{name}: calm {got['calm']['median']:.1f} ms, busy {got['busy']['median']:.1f} ms, calm again "
            f"{got['again']['median']:.1f} ms; busyness costs {cost['median']:.1f} ms ({spread})"
        )
    ratio = one["cost_ratio"]
    lines.append(
        f"ratio of costs {ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f}; of means "
        f"{ratio['mean']:.2f}); time to switch {_ms(one['switch_ms'])}, to return {_ms(one['return_ms'])}"
    )
    return "\n  ".join(["", *lines]).strip()


def _ms(times: list[float | None]) -> str:
    known = [ms for ms in times if ms is not None]
    return f"{np.median(known):.0f} ms ({len(known)} of {len(times)})" if known else "never"


if __name__ == "__main__":
    run_command(main, "adaptive.py")
