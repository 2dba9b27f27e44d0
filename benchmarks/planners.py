"""Our plans against other planners' on the same executor: ``python benchmarks/planners.py MODEL... --out FOLDER``.

For each network, from one interleaved run on the phone: CPU only (all its threads), GPU only, and the plans of five
planners over the same measured costs: each operator whole on its faster processor (layer-wise), one ratio of channels for
all (muLayer), CoDL's, greedy chains that also know what sharing costs, and ours with its second look.  Every answer is compared with onnxruntime's.

``--out`` keeps one JSON file a network, and the plans: a run that was interrupted goes on with the networks that are not
there.  ``--table FOLDER`` prints the table of results from such files and measures nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TOPHUB_LOCATION", "NONE")

import click
import msgspec
import numpy as np
from planners_table import OURS, TITLES, Planners, Variant, markdown, summary

from tvm_codl.cli.options import json_option, measuring_options, phone_options
from tvm_codl.cli.output import print_json, talk
from tvm_codl.errors import CheckFailed, CodlError, UserError
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.kernels.toolchain import Toolchain, toolchain
from tvm_codl.measure.bench import TOLERANCE, Operators, errors
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.interleave import RUNS, calm_down, rounds
from tvm_codl.measure.workflow import Prepared, learn, libraries_for, open_library, prepare, second_look, shortlist
from tvm_codl.plan.baselines.uniform_ratio import COMPARATORS
from tvm_codl.plan.files import dump_plan
from tvm_codl.plan.plan import Plan
from tvm_codl.plan.shortlist import uniform
from tvm_codl.report.statistics import Statistics
from tvm_codl.runtime.comodule import CoModule

#: Rounds of a slow network: as many as take this long for one variant, and this many at least.
SECONDS, FEWEST = 20.0, 8
#: The operators by themselves, for the ideal, are timed so many times between the rounds.
IDEALS = 4


def planned(
    prepared: Prepared, phone: Any, tools: Toolchain, budget_s: float, records: Path | None, tuning: Path | None
) -> dict[str, Plan]:
    """Every planner's plan, ours as the second look on the phone has it.  Libraries of all are built together."""
    found, problem = learn(prepared, phone, Budget(seconds=budget_s), talk, records, tuning)
    plans = {**uniform(problem), **{name: planner(problem) for name, planner in COMPARATORS.items()}}
    racing = shortlist(problem, found.plan, records)
    libraries_for(prepared, {**plans, **{f"{c.origin}.": c.plan for c in racing}}, tools, talk)
    return {**plans, OURS: second_look(prepared, problem, racing, phone, tools, talk, records)}


def checked(prepared: Prepared, modules: Mapping[Path, CoModule]) -> dict[Path, float]:
    """Each library's largest error against onnxruntime; raises :class:`CheckFailed` for one over the tolerance."""
    inputs = prepared.model.sample_inputs()
    wanted = reference_outputs(prepared.model, inputs)
    found = {}
    for path, module in modules.items():
        found[path] = errors(module.run(inputs), wanted)[1]
        if found[path] > TOLERANCE:
            raise CheckFailed(
                f"{prepared.name}: an answer differs from onnxruntime's by {found[path]:.2e} relative", str(path)
            )
    return found


def timed(modules: Mapping[str, CoModule], operators: Operators, most: int) -> tuple[dict[str, list[float]], int]:
    """Samples of all modules in turn, the operators by themselves in between, and the number of rounds."""
    operators.measure()
    calm_down()
    samples = rounds(modules, 1)
    longest = max(float(np.median(times)) for times in samples.values()) * (1 + RUNS) / 1e3
    wanted = max(FEWEST, min(most, int(SECONDS / longest)))
    talk(f"running {wanted} rounds of {len(modules)} libraries")
    done = 1
    for part in range(IDEALS):
        count = wanted * (part + 1) // IDEALS - done
        for name, times in rounds(modules, count).items():
            samples[name] += times
        done += max(count, 0)
        operators.measure()
    return samples, done


def compare(
    prepared: Prepared, phone: Any, budget_s: float, most: int, records: Path | None, tuning: Path | None
) -> tuple[Planners, dict[str, Plan]]:
    tools = toolchain(phone.profile, tuning)
    talk(f"{prepared.name}: {len(prepared.graph.operators)} operators")
    plans = planned(prepared, phone, tools, budget_s, records, tuning)
    paths = libraries_for(prepared, plans, tools, talk)
    first = {path: next(name for name in plans if paths[name] == path) for path in paths.values()}
    modules = {path: open_library(path, phone) for path in first}
    wrong = checked(prepared, modules)
    operators = Operators(prepared, phone, tools, records, talk)
    samples, done = timed({first[path]: module for path, module in modules.items()}, operators, most)
    variants = {
        name: Variant(
            Statistics.of(samples[first[paths[name]]]),
            plan.predicted_ms,
            sum(line.placement.on == "split" for line in plan.operators),
            wrong[paths[name]],
            modules[paths[name]].memory_bytes.total,
            same_as=first[paths[name]] if first[paths[name]] != name else "",
        )
        for name, plan in plans.items()
    }
    return Planners(
        prepared.name, phone.profile.name, variants, operators.ideal_ms(), done, time.time()
    ), plans  # fmt: skip


def said(result: Planners) -> str:
    """A network's numbers as lines for a person."""
    lines = []
    for name, variant in result.variants.items():
        ms = variant.ms
        lines.append(
            f"{TITLES[name]:14} {ms.median:9.3f} ms  ({ms.p10:.3f} to {ms.p90:.3f}, {ms.n} samples)  predicted "
            f"{variant.predicted_ms:9.3f}  {variant.splits:3} split  error {variant.max_rel_err:.1e}"
            + (f"  {variant.memory_bytes / 1e6:.1f} MB" if variant.memory_bytes else "")
            + (f"  (= {TITLES[variant.same_as]})" if variant.same_as else "")
        )
    against = ", ".join(f"{TITLES[name]} {result.against(name):.3f}" for name in COMPARATORS)
    lines.append(
        f"speedup {result.speedup:.2f}, efficiency {result.efficiency:.2f}, times as long as ours: {against}; "
        f"ideal {result.ideal_ms:.3f} ms"
    )
    return "\n".join(lines)


def kept(folder: Path) -> list[Planners]:
    """The results in a folder, by name.  Raises :class:`UserError` for a file that is none."""
    found = []
    for path in sorted(folder.glob("*.planners.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Planners))
        except msgspec.DecodeError as error:
            raise UserError(f"{path} holds no comparison of planners", str(error), "run with --again") from error
    return found


def keep(folder: Path, name: str, result: Planners, plans: Mapping[str, Plan]) -> None:
    """The plans first: a result that is there says that all of it is."""
    for planner, plan in plans.items():
        dump_plan(plan, folder / f"{name}.{planner}.plan.json")
    partial = folder / f".{name}.{os.getpid()}"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    partial.replace(folder / f"{name}.planners.json")


@click.command()
@click.argument("sources", metavar="MODEL...", nargs=-1)
@phone_options
@measuring_options
@click.option("--rounds", "most", type=click.IntRange(1), default=20, show_default=True, help="Interleaved rounds.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Keep results and plans here.")
@click.option("--again", is_flag=True, help="Measure the networks anew whose results are there.")
@click.option(
    "--table", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Print this folder's table."
)
@json_option
def main(
    sources: Sequence[str], reach: Any, budget: float, records: Path | None, tuning_records: Path | None, most: int,
    out: Path | None, again: bool, table: Path | None, as_json: bool,
) -> None:  # fmt: skip
    if table is None and not sources:
        raise click.UsageError("there is nothing to compare: name a MODEL, or a folder of results with --table")
    results: list[Planners] = kept(table) if table is not None else []
    failed: list[CodlError] = []
    for source in sources:
        name = source.removeprefix("zoo:").replace("/", "_")
        place = out / f"{name}.planners.json" if out else None
        if place is not None and place.exists() and not again:
            talk(f"{source}: {place} is there")
            results.append(msgspec.json.decode(place.read_bytes(), type=Planners))
            continue
        try:
            prepared = prepare(load_model(source))
            with reach() as phone:  # a session each: what one network leaves behind meets no other
                result, plans = compare(prepared, phone, budget, most, records, tuning_records)
        except CodlError as error:
            talk(f"{source}: {error}")
            failed.append(error)
            continue
        talk(f"{source}:\n{said(result)}")
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            keep(out, name, result, plans)
        results.append(result)
    if results and as_json:
        print_json({"networks": results, "summary": summary(results)})
    elif results:
        click.echo(markdown(results))
    if failed:
        sys.exit(max(error.exit_code for error in failed))


if __name__ == "__main__":
    sys.exit(main())
