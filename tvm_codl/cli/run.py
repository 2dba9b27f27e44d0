"""``tvm-codl run``."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np

from tvm_codl.cli.options import (
    FILE,
    PhoneChoice,
    complete_file,
    effort,
    effort_options,
    given_options,
    json_option,
    measuring_options,
    named_plan,
    no_check_option,
    phone_options,
    plan_option,
    read_network,
    shape_option,
)
from tvm_codl.cli.output import print_json, talk, write_timeline
from tvm_codl.cli.output_file import OUTPUT_FILE
from tvm_codl.errors import UsageError, UserError
from tvm_codl.report.statistics import Statistics

#: Parameters that say how a MODEL becomes a library; a library has all that in it.
OF_A_MODEL = frozenset(
    ("shape", "no_check", "budget", "records", "tuning_records", "given", "rpc_phones", "time_limit", "again")
)


@click.command()
@click.argument("source", metavar="MODEL_OR_LIBRARY", shell_complete=complete_file)
@shape_option
@no_check_option
@phone_options
@measuring_options
@effort_options
@plan_option
@click.option("-i", "--inputs", type=FILE, help="An .npz file with one array for each input.")
@click.option("--fill-mode", type=click.Choice(["random", "zeros", "ones"]), default="random", show_default=True,
              help="What the inputs hold where --inputs names no file.")  # fmt: skip
@click.option("-o", "--outputs", type=OUTPUT_FILE, help="Write the outputs to this .npz file.")
@click.option("--repeat", type=click.IntRange(0), default=0, help="Also time this many samples.")
@click.option("--number", type=click.IntRange(1), default=1, show_default=True, help="Runs in each sample.")
@click.option("--timeline", type=OUTPUT_FILE, help="Write one run's timeline to this file, for Perfetto.")
@json_option
def command(
    source: str, shape: Any, phone: PhoneChoice, budget: float, given: str, inputs: Path | None, fill_mode: str, outputs: Path | None, repeat: int, number: int, timeline: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Run a library (.so) or a MODEL (an ONNX or TFLite file, or zoo:NAME) on a phone and print what came out."""
    library = Path(source) if source.endswith(".so") else None
    if library:
        _check_usage(source)
    phone.start()
    prepared = None if library else read_network(source, shape)
    given_inputs = read_inputs(inputs) if inputs else None
    from tvm_codl.measure.choices import check_settings

    plan = named_plan(given, prepared) if given and prepared else None
    with phone.connect() as session:
        if library is None:
            assert prepared is not None
            plan = plan or session.plan(prepared, budget, **effort())
            check_settings(plan.settings, session.profile)
            module = session.open_plan(prepared, plan)
        else:
            module = session.open(library)
        ports = [(port.name, port.shape, port.dtype) for port in module.inputs]
        values = given_inputs if given_inputs is not None else _fill(ports, fill_mode)
        results = dict(zip((port.name for port in module.outputs), module.run(values), strict=True))
        times = Statistics.of(module.benchmark(number, repeat)) if repeat else None
        plans = _describe_plans(module) if module.about.plans else None
        events = module.timeline() if timeline is not None else None
    summary = [_summarise(name, value) for name, value in results.items()]
    if as_json:
        print_json({"outputs": summary, "ms": times, **({"adaptation": plans} if plans else {})})
    else:
        _print(summary, times, plans)
    if outputs is not None:
        with outputs.open("wb") as file:  # by its name alone numpy would add .npz
            np.savez(file, allow_pickle=False, **results)
        talk(f"outputs: {outputs}")
    if timeline is not None:
        write_timeline(timeline, events, source)


def _check_usage(library: str) -> None:
    """Raises :class:`UsageError` for options that would have no say in how a library runs."""
    named = [option for name, option in given_options().items() if name in OF_A_MODEL]
    if named:
        options = ", ".join(sorted(named))
        raise UsageError(
            f"{options}: for a MODEL alone, and {library} is a library",
            "a library has its plan, shapes and kernels in it",
            f"leave {'it' if len(named) == 1 else 'them'} out, or build another library: tvm-codl build MODEL --help",
        )


def _print(summary: list[dict[str, Any]], times: Statistics | None, plans: dict[str, Any] | None) -> None:
    for line in summary:
        click.echo("{name}: {dtype}{shape}, min {min:.6g}, mean {mean:.6g}, max {max:.6g}".format(**line))
    if times is not None:
        click.echo(f"median {times.median:.3f} ms, p10 {times.p10:.3f}, p90 {times.p90:.3f}, n {times.n}")
    if plans is not None:
        click.echo(f"plan {plans['plan']!r} of {', '.join(plans['plans'])}; {len(plans['switches'])} switches")
        for switch in plans["switches"]:
            click.echo("  after {run} runs {from} -> {to}: {reason} ({from_ms:.2f} -> {to_ms:.2f} ms)".format(**switch))


def _describe_plans(module: Any) -> dict[str, Any]:
    """Which of a library's plans runs, and every change of it."""
    now, name = module.adaptation, module.plan_name
    switches = [
        {"run": each.run, "from": name(each.left), "to": name(each.taken), "reason": each.reason,
         "from_ms": each.from_ms, "to_ms": each.to_ms}
        for each in now.switches
    ]  # fmt: skip
    plans = [plan.name for plan in module.about.plans]
    return {"plan": name(now.plan), "plans": plans, "runs": now.runs, "trials": now.trials, "switches": switches}


def read_inputs(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as opened:
            file = np.load(opened, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("it is one array, without a name")
            arrays = {name: file[name] for name in file.files}
        if others := [name for name, value in arrays.items() if not isinstance(value, np.ndarray)]:
            raise ValueError(f"{others[0]} is no array")
        return arrays
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} is no .npz file of arrays", str(error), "write it with numpy.savez(FILE, input_name=array)"
        ) from error


def _fill(ports: Iterable[tuple[str, tuple[int, ...], str]], mode: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    make = {"random": random.random, "zeros": np.zeros, "ones": np.ones}[mode]
    return {name: np.asarray(make(shape), dtype) for name, shape, dtype in ports}  # type: ignore[operator]


def _summarise(name: str, value: np.ndarray) -> dict[str, Any]:
    amounts = {what: float(getattr(value, what)()) for what in ("min", "mean", "max")}
    return {"name": name, "shape": list(value.shape), "dtype": str(value.dtype), **amounts}
