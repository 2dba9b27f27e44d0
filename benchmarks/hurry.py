"""How long a plan takes, and what its hurry costs: ``python benchmarks/hurry.py MODEL... [--json]``.

For each network ``tvm-codl plan`` runs from an empty cache, but for the native plugin, and once more; then from another
empty cache with more time to measure.  The libraries of both plans run in turn on the local phone, beside each processor
alone.  Last, once the operators are measured in a third cache, the libraries of six candidate plans are built there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import msgspec
import numpy as np

from tvm_codl.api import Session, connect
from tvm_codl.cli.main import main as run_command
from tvm_codl.cli.options import json_option
from tvm_codl.cli.output import print_json, talk
from tvm_codl.frontend.load import load_model
from tvm_codl.measure.budget import USUAL_S, Budget
from tvm_codl.measure.interleave import race, start
from tvm_codl.measure.learning import learn
from tvm_codl.measure.plan_libraries import libraries_for, open_plans
from tvm_codl.paths import cache_dir
from tvm_codl.plan.baselines.planners import PLANNERS
from tvm_codl.plan.files import load_plan
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report.statistics import Statistics
from tvm_codl.runtime import plugin


class Row(msgspec.Struct, frozen=True):
    """Seconds of each command and of building ``libraries`` libraries; ms of runs; ``over_unhurried``: the plan's time over
    that of the plan with more time, of runs of one round."""

    model: str
    plan_s: float
    again_s: float
    unhurried_s: float
    build_s: float
    libraries: int
    ms: dict[str, Statistics]
    over_unhurried: Statistics
    disturbed: bool


def plan_from(cache: Path, model: str, output: Path, budget_s: float) -> float:
    """Writes a plan, and returns the seconds that the command took."""
    line = [sys.executable, "-m", "tvm_codl", "plan", model, "-o", str(output), "--budget", str(budget_s)]
    begin = time.monotonic()
    subprocess.run(line, env={**os.environ, "TVM_CODL_CACHE": str(cache)}, check=True)
    took = time.monotonic() - begin
    talk(f"{model}: {took:.1f} s")
    return took


def build_candidates(prepared: Prepared, session: Session) -> tuple[float, int]:
    """Seconds to build the libraries of each processor alone, the search's plan, and other planners'; and how many."""
    guided, problem = learn(prepared, session, Budget(seconds=USUAL_S))
    plans = {on: uniform_plan(prepared.graph, on, prepared.name) for on in ("cpu", "gpu")}
    plans |= {name: PLANNERS[name](problem) for name in ("one_ratio", "codl", "greedy_chains")}
    begin = time.monotonic()
    paths = libraries_for(prepared, {**plans, "search": guided.plan}, session.tools, talk)
    return time.monotonic() - begin, len(set(paths.values()))


def hurry(model: str, budget_s: float, rounds: int, folder: Path) -> Row:
    caches = [folder / name for name in ("usual", "unhurried", "candidates")]
    native = plugin.path().parents[1]
    for cache in caches:
        cache.mkdir()
        (cache / "native").symlink_to(native)
    plans = {cache.name: cache / "plan.json" for cache in caches[:2]}
    plan_s, again_s = (plan_from(caches[0], model, plans["usual"], USUAL_S) for _ in range(2))
    unhurried_s = plan_from(caches[1], model, plans["unhurried"], budget_s)
    prepared = prepare(load_model(model))
    os.environ["TVM_CODL_CACHE"] = str(caches[0])
    with connect(log=talk) as session:
        wanted = {on: uniform_plan(prepared.graph, on, prepared.name) for on in ("cpu", "gpu")}
        wanted |= {name: load_plan(path) for name, path in plans.items()}
        modules = open_plans(prepared, wanted, session)
        start(modules, prepared.samples)
        racing = race(modules, usual=session.usual_work)
        samples = racing.run(rounds)
    os.environ["TVM_CODL_CACHE"] = str(caches[2])
    with connect(log=talk) as session:
        build_s, libraries = build_candidates(prepared, session)
    ratios = np.array(samples["usual"]) / np.array(samples["unhurried"])
    return Row(
        model, plan_s, again_s, unhurried_s, build_s, libraries,
        {name: Statistics.of(times) for name, times in samples.items()}, Statistics.of(ratios.tolist()), racing.disturbed,
    )  # fmt: skip


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option("--budget", "budget_s", default=120.0, metavar="SECONDS", help="To measure for without hurry.")
@click.option("--rounds", type=click.IntRange(1), default=60, show_default=True)
@json_option
def main(models: tuple[str, ...], budget_s: float, rounds: int, as_json: bool) -> None:
    """Prints a line for each of MODELS."""
    rows, usual = [], cache_dir()
    for model in models:
        os.environ["TVM_CODL_CACHE"] = str(usual)
        with tempfile.TemporaryDirectory(prefix="tvm_codl-hurry-") as folder:
            rows.append(row := hurry(model, budget_s, rounds, Path(folder)))
        if not as_json:
            ratio = row.over_unhurried
            click.echo(
                f"{model}: plan {row.plan_s:.0f} s, again {row.again_s:.1f} s; {ratio.median:.3f} ({ratio.p10:.3f} to "
                f"{ratio.p90:.3f}) of the time of the plan that took {row.unhurried_s:.0f} s"
                + (", disturbed" if row.disturbed else "")
                + f"; {row.libraries} libraries in {row.build_s:.1f} s"
            )
    if as_json:
        print_json(rows)


if __name__ == "__main__":
    run_command(main, "hurry.py")
