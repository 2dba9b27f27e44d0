"""Networks on each processor of a phone alone: ``python benchmarks/processors.py [zoo:NAME…] [--rounds N] [--json]``.

Each network is built for the CPU alone and for the GPU alone, several networks side by side; then its two libraries run in
turn, and each answer is compared with the reference.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TOPHUB_LOCATION", "NONE")

import click
import msgspec
import numpy as np

from tvm_codl.api import Session
from tvm_codl.build.pool import build_all
from tvm_codl.cli.options import PhoneChoice, json_option, phone_options, records_option, tuning_records_option
from tvm_codl.cli.output import print_json, talk
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.frontend.zoo import ENTRIES
from tvm_codl.measure.answers import answer_errors
from tvm_codl.measure.plan_libraries import build_library
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.relay.pipeline import prepare
from tvm_codl.report.statistics import Statistics

PROCESSORS = ("cpu", "gpu")
#: A sample is the mean of so many runs.
RUNS = 5
#: Networks that are built at once, as each takes gigabytes.
AT_ONCE = 8


class Row(msgspec.Struct, frozen=True):
    """``ms`` and ``max_rel_err`` by processor; ``cpu_over_gpu`` > 1: the GPU is faster."""

    model: str
    ms: dict[str, Statistics]
    max_rel_err: dict[str, float]
    cpu_over_gpu: float


def build_networks(names: Sequence[str], session: Session, folder: Path) -> dict[str, Path]:
    """For each network that builds a folder with ``cpu.so``, ``gpu.so``, ``inputs.npz`` and ``wanted.npz``."""

    def write(index: int) -> Path:
        model = load_model(names[index])
        prepared = prepare(model)
        place = folder / names[index].removeprefix("zoo:")
        place.mkdir()
        for on in PROCESSORS:
            plan = uniform_plan(prepared.graph, on)
            build_library(prepared, plan, session.profile, session.tools, place / f"{on}.so", lambda _: None)
        inputs = model.sample_inputs()
        np.savez(place / "inputs.npz", **inputs)
        np.savez(place / "wanted.npz", *reference_outputs(model, inputs))
        return place

    built = {}
    for index, outcome in build_all(len(names), write, min(AT_ONCE, len(os.sched_getaffinity(0)))):
        if outcome.path is None:
            talk(f"{names[index]} is not built: {outcome.error}")
        else:
            built[names[index]] = outcome.path
            talk(f"{names[index]} is built")
    return built


def measure(name: str, place: Path, session: Session, rounds: int) -> Row:
    """Times one network's two libraries in turn."""
    modules = {on: session.open(place / f"{on}.so") for on in PROCESSORS}
    inputs = dict(np.load(place / "inputs.npz"))
    with np.load(place / "wanted.npz") as file:
        wanted = [file[key] for key in file.files]
    errors = {on: answer_errors(module.run(inputs), wanted)[1] for on, module in modules.items()}
    samples: dict[str, list[float]] = {on: [] for on in modules}
    for _ in range(rounds):
        for on, module in modules.items():
            samples[on] += module.benchmark(RUNS, 1)
    times = {on: Statistics.of(each) for on, each in samples.items()}
    talk(", ".join(f"{on} {times[on].median:.3f} ms, error {errors[on]:.1e}" for on in PROCESSORS) + f": {name}")
    return Row(name, times, errors, times["cpu"].median / times["gpu"].median)


@click.command()
@click.argument("models", nargs=-1)
@phone_options
@records_option
@tuning_records_option
@click.option("--rounds", type=click.IntRange(1), default=10, show_default=True)
@json_option
def main(models: tuple[str, ...], phone: PhoneChoice, rounds: int, as_json: bool) -> None:
    """Prints one line for each of MODELS (default: the whole zoo)."""
    names = models or tuple(f"zoo:{entry.name}" for entry in ENTRIES if entry.name != "small")
    with phone.connect() as session, tempfile.TemporaryDirectory(prefix="tvm_codl-processors-") as folder:
        built = build_networks(names, session, Path(folder))
        rows = [measure(name, built[name], session, rounds) for name in names if name in built]
        device = session.device
    if as_json:
        return print_json({"device": device, "rows": [msgspec.to_builtins(row) for row in rows]})
    for row in rows:
        click.echo(f"{row.model:24} " + "  ".join(f"{on} {row.ms[on].median:9.3f} ms" for on in PROCESSORS))
    return None


if __name__ == "__main__":
    main()
