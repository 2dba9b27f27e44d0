"""Networks on each processor of a phone alone, and by a plan:
``python benchmarks/processors.py [zoo:NAME…] [--plan SECONDS] [--rounds N] [--json]``.

The networks are built for the CPU alone and for the GPU alone side by side.  With ``--plan`` each is then measured for so
many seconds and planned, and its best plans are tried as ``tvm-codl plan`` tries them.  At last its libraries run in turn, and
each answer is compared with the reference.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from tvm_codl.api import Session
from tvm_codl.build.pool import build_all
from tvm_codl.cli.options import PhoneChoice, json_option, phone_options, records_option, tuning_records_option
from tvm_codl.cli.output import print_json, talk
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.frontend.zoo import ENTRIES
from tvm_codl.measure.answers import answer_errors
from tvm_codl.measure.budget import Budget
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
#: A sample is the mean of so many runs.
RUNS = 5
#: Libraries that are built at once, as each takes up to a gigabyte.
AT_ONCE = 16


class Row(msgspec.Struct, frozen=True):
    """``ms``, ``predicted_ms`` and ``max_rel_err`` by ``cpu``, ``gpu`` and ``plan``; ``cpu_over_gpu`` > 1: the GPU is faster.

    The processors' predictions are those before the network ran; the plan's is what its user is told.  ``split``: the plan
    uses both processors.
    """

    model: str
    ms: dict[str, Statistics]
    predicted_ms: dict[str, float]
    max_rel_err: dict[str, float]
    cpu_over_gpu: float
    split: bool


def build_networks(networks: Mapping[str, Prepared], session: Session, folder: Path) -> dict[str, dict[str, Path]]:
    """By network and processor the libraries of those networks that build for both."""
    jobs = [(name, on) for name in networks for on in PROCESSORS]

    def write(index: int) -> Path:
        name, on = jobs[index]
        plan = uniform_plan(networks[name].graph, on)
        out = folder / f"{index}.so"
        return build_library(networks[name], plan, session.profile, session.tools, out, lambda _: None)

    built: dict[str, dict[str, Path]] = {name: {} for name in networks}
    for index, outcome in build_all(len(jobs), write, min(AT_ONCE, len(os.sched_getaffinity(0)))):
        name, on = jobs[index]
        if outcome.path is None:
            talk(f"{name} is not built for the {on}: {outcome.error}")
        else:
            built[name][on] = outcome.path
    return {name: paths for name, paths in built.items() if len(paths) == len(PROCESSORS)}


def measure(name: str, prepared: Prepared, paths: dict[str, Path], session: Session, rounds: int, plan_s: float) -> Row:
    """Times one network's libraries in turn, ``paths`` by processor and, here, that of its plan."""
    predicted, alone = {}, None
    if plan_s:
        guided, problem = learn(prepared, session, Budget(seconds=plan_s))
        best = validate(prepared, problem, shortlist(problem, guided.plan, session), session)
        plans = {**problem.single_processor_plans(), "plan": best}
        predicted = {on: plan.predicted_ms for on, plan in plans.items()}
        alone = single_processor(each.on for each in best.placements)
        paths["plan"] = paths[alone] if alone else session.library(prepared, best)
    modules = {on: session.open(path) for on, path in paths.items()}
    inputs = prepared.model.sample_inputs()
    wanted = reference_outputs(prepared.model, inputs)
    errors = {on: answer_errors(module.run(inputs), wanted, prepared.model.quanta)[1] for on, module in modules.items()}
    samples: dict[str, list[float]] = {on: [] for on in modules}
    for _ in range(rounds):
        for on, module in modules.items():
            samples[on] += module.benchmark(RUNS, 1)
    times = {on: Statistics.of(each) for on, each in samples.items()}
    words = (
        f"{on} {times[on].median:.3f} ms (predicted {predicted.get(on, 0):.3f}), error {errors[on]:.1e}" for on in times
    )
    talk(f"{name}: {', '.join(words)}")
    return Row(name, times, predicted, errors, times["cpu"].median / times["gpu"].median, plan_s > 0 and not alone)


@click.command()
@click.argument("models", nargs=-1)
@phone_options
@records_option
@tuning_records_option
@click.option("--plan", "plan_s", default=0.0, metavar="SECONDS", help="Also by a plan, measured for so long.")
@click.option("--rounds", type=click.IntRange(1), default=10, show_default=True)
@json_option
def main(models: tuple[str, ...], phone: PhoneChoice, plan_s: float, rounds: int, as_json: bool) -> None:
    """Prints one line for each of MODELS (default: the whole zoo)."""
    names = models or tuple(f"zoo:{entry.name}" for entry in ENTRIES if entry.name != "small")
    with phone.connect() as session, tempfile.TemporaryDirectory(prefix="tvm_codl-processors-") as folder:
        networks = {name: prepare(load_model(name)) for name in names}
        built = build_networks(networks, session, Path(folder))
        rows = [measure(name, networks[name], paths, session, rounds, plan_s) for name, paths in built.items()]
        device = session.device
    if as_json:
        return print_json({"device": device, "rows": [msgspec.to_builtins(row) for row in rows]})
    for row in rows:
        click.echo(f"{row.model:24} " + "  ".join(f"{on} {each.median:9.3f} ms" for on, each in row.ms.items()))
    return None


if __name__ == "__main__":
    main()
