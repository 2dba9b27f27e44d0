"""Networks on each processor of a phone alone, and by a plan:
``python benchmarks/processors.py [zoo:NAME…] [--plan SECONDS] [--rounds N] [--json]``.

Each network has a process of its own, as a GPU's driver may crash.  Where there are cores to spare, all load and build side by
side; then one after the other measures.  With ``--plan`` a network is measured for so many seconds and planned, and its best
plans are tried as ``tvm-codl plan`` tries them.  At last its libraries run in turn, and each answer is compared with the
reference.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from tvm_codl.api import Session
from tvm_codl.build.pool import build_all
from tvm_codl.cli.main import main as run_command
from tvm_codl.cli.options import PhoneChoice, json_option, phone_options, records_option, tuning_records_option
from tvm_codl.cli.output import print_json, talk
from tvm_codl.errors import UsageError
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.zoo import ENTRIES
from tvm_codl.measure.answers import answer_errors
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.interleave import race
from tvm_codl.measure.learning import learn
from tvm_codl.measure.plan_libraries import build_library
from tvm_codl.measure.planning import shortlist
from tvm_codl.measure.validation import validate
from tvm_codl.plan.plan import single_processor, uniform_plan
from tvm_codl.records.record import Processor
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report.statistics import Statistics

PROCESSORS: tuple[Processor, ...] = ("cpu", "gpu")
#: Networks that load at once where there are cores to spare, as each takes some gigabytes.
AT_ONCE = 24


class Row(msgspec.Struct, frozen=True):
    """``ms``, ``predicted_ms`` and ``max_rel_err`` by ``cpu``, ``gpu`` and ``plan``; ``cpu_over_gpu`` > 1: the GPU is faster.

    The processors' predictions are those before the network ran; the plan's is what its user is told.  ``split``: the plan
    uses both processors; else its times are those of the processor that it uses.
    """

    model: str
    ms: dict[str, Statistics]
    predicted_ms: dict[str, float]
    max_rel_err: dict[str, float]
    cpu_over_gpu: float
    split: bool


def build(prepared: Prepared, session: Session, folder: Path) -> dict[str, Path]:
    """By processor the library of the network on that processor alone."""

    def write(index: int) -> Path:
        plan = uniform_plan(prepared.graph, PROCESSORS[index])
        out = folder / f"{PROCESSORS[index]}.so"
        return build_library(prepared, plan, session.profile, session.tools, out, lambda _: None)

    built = {}
    for index, outcome in build_all(len(PROCESSORS), write):
        if outcome.path is None:
            raise UsageError(f"{prepared.name} is not built for the {PROCESSORS[index]}", outcome.error)
        built[PROCESSORS[index]] = outcome.path
    return built


def measure(name: str, prepared: Prepared, paths: dict[str, Path], session: Session, rounds: int, plan_s: float) -> Row:
    """Times one network's libraries in turn, ``paths`` by processor and, here, that of its plan."""
    predicted, alone = {}, None
    if plan_s:
        guided, problem = learn(prepared, session, Budget(seconds=plan_s))
        best = validate(prepared, problem, shortlist(problem, guided.plan, session), session)
        plans = {**problem.single_processor_plans(), "plan": best}
        predicted = {on: plan.predicted_ms for on, plan in plans.items()}
        alone = single_processor(each.on for each in best.placements)
        if not alone:
            paths["plan"] = session.library(prepared, best)
    modules = {on: session.open(path) for on, path in paths.items()}
    errors = {
        on: answer_errors(module.run(prepared.samples), prepared.answers, prepared.quanta)[1]
        for on, module in modules.items()
    }
    racing = race(modules, usual=session.usual_work)
    samples = racing.run(rounds)
    if racing.words:
        talk(racing.words)
    if alone:
        samples["plan"], errors["plan"] = samples[alone], errors[alone]
    times = {on: Statistics.of(each) for on, each in samples.items()}
    words = (
        f"{on} {times[on].median:.3f} ms (predicted {predicted.get(on, 0):.3f}), error {errors[on]:.1e}" for on in times
    )
    talk(f"{name}: {', '.join(words)}")
    return Row(name, times, predicted, errors, times["cpu"].median / times["gpu"].median, plan_s > 0 and not alone)


def run_one(name: str, phone: PhoneChoice, rounds: int, plan_s: float) -> None:
    """Writes a line when the network may be measured, waits for one, and writes its row."""
    with phone.connect() as session, tempfile.TemporaryDirectory(prefix="tvm_codl-processors-") as folder:
        prepared = prepare(load_model(name))
        paths = build(prepared, session, Path(folder))
        print(session.device, flush=True)
        if not sys.stdin.readline():
            return  # who started this has been stopped
        print(msgspec.json.encode(measure(name, prepared, paths, session, rounds, plan_s)).decode(), flush=True)


def run_each(names: Sequence[str], options: Sequence[str], limit_s: float) -> Iterator[tuple[str, str, str]]:
    """Each network's name, device and row, as its process writes them; the row is empty where it ends otherwise."""
    command = [sys.executable, __file__, *options, "--waits"]
    at_once = AT_ONCE if len(os.sched_getaffinity(0)) > 4 else 1
    for start in range(0, len(names), at_once):
        group = names[start : start + at_once]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        running = {name: subprocess.Popen([*command, name], **pipes) for name in group}
        devices = {name: each.stdout.readline().strip() for name, each in running.items()}
        for name, each in running.items():
            try:
                row, _ = each.communicate("\n", limit_s)
                why = f"it ended with {each.returncode}"
            except subprocess.TimeoutExpired:
                each.kill()
                row, why = "", f"it took more than {limit_s:g} s"
            if not row:
                talk(f"{name} is left out: {why}")
            yield name, devices[name], row


@click.command()
@click.argument("models", nargs=-1)
@phone_options
@records_option
@tuning_records_option
@click.option("--plan", "plan_s", default=0.0, metavar="SECONDS", help="Also by a plan, measured for so long.")
@click.option("--rounds", type=click.IntRange(1), default=10, show_default=True)
@click.option("--limit", "limit_s", default=600.0, metavar="SECONDS", help="A network that takes longer is left out.")
@click.option("--waits", is_flag=True, hidden=True)
@json_option
def main(
    models: tuple[str, ...], phone: PhoneChoice, plan_s: float, rounds: int, limit_s: float, waits: bool, as_json: bool
) -> None:
    """Prints one line for each of MODELS (default: the whole zoo)."""
    if waits:
        return run_one(models[0], phone, rounds, plan_s)
    names = models or tuple(f"zoo:{entry.name}" for entry in ENTRIES if entry.name != "small")
    options = [word for word in sys.argv[1:] if word not in models]
    done = list(run_each(names, options, limit_s))
    rows = [msgspec.json.decode(row, type=Row) for _, _, row in done if row]
    if as_json:
        left_out = [name for name, _, row in done if not row]
        device = next((device for _, device, _ in done if device), "")
        return print_json({"device": device, "rows": msgspec.to_builtins(rows), "left_out": left_out})
    for row in rows:
        click.echo(f"{row.model:24} " + "  ".join(f"{on} {each.median:9.3f} ms" for on, each in row.ms.items()))
    return None


if __name__ == "__main__":
    run_command(main, "processors.py")
