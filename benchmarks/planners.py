"""Our plans against other planners' on the same executor: ``python benchmarks/planners.py [MODEL...] --out FOLDER``.

For each network, by default all of the zoo but the one for tests, from one interleaved run on the phone: CPU only (all its
threads), GPU only, and the plans of five planners over the same measured costs: each operator whole on its faster processor
(layer-wise), one ratio of channels for all (muLayer), CoDL's, greedy chains that also know what sharing costs, and ours with
its second look.  Every answer is compared with the reference's.

``--out`` keeps one JSON file a network, and the plans: a run that was interrupted goes on with the networks that are not
there.  ``--table FOLDER`` prints the table of RESULTS.md from such files and measures nothing.  ``--html FILE`` also
writes the table as a page.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec
import numpy as np
from planners_table import OURS, TITLES, Planners, Variant, markdown, page, summary

from tvm_codl.api import Session
from tvm_codl.cli.main import main as run_command
from tvm_codl.cli.options import PhoneChoice, json_option, measuring_options, phone_options
from tvm_codl.cli.output import print_json, talk
from tvm_codl.cli.output_file import OUTPUT_FILE
from tvm_codl.errors import CodlError, UserError
from tvm_codl.frontend import zoo
from tvm_codl.frontend.load import load_model
from tvm_codl.measure.answers import check_answer
from tvm_codl.measure.bench import Operators
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.interleave import RUNS, calm_down, race
from tvm_codl.measure.learning import learn
from tvm_codl.measure.plan_libraries import libraries_for
from tvm_codl.measure.planning import shortlist
from tvm_codl.measure.validation import validate
from tvm_codl.plan.baselines.planners import PLANNERS
from tvm_codl.plan.files import dump_plan
from tvm_codl.plan.plan import Plan
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report.statistics import Statistics
from tvm_codl.report.tables_page import render_tables
from tvm_codl.runtime.comodule import CoModule

#: Rounds of a slow network: as many as take this long for one variant, and this many at least.
SECONDS, FEWEST = 20.0, 8
#: The operators by themselves, for the ideal, are timed so many times between the rounds.
IDEALS = 4


def make_plans(prepared: Prepared, session: Session, budget_s: float) -> dict[str, Plan]:
    """Every planner's plan, ours after validation on the phone.  Builds the libraries of all together."""
    guided, problem = learn(prepared, session, Budget(seconds=budget_s))
    plans = {**problem.single_processor_plans(), **{name: planner(problem) for name, planner in PLANNERS.items()}}
    racing = shortlist(problem, guided.plan, session)
    libraries_for(prepared, {**plans, **{f"{c.origin}.": c.plan for c in racing}}, session.tools, talk)
    return {**plans, OURS: validate(prepared, problem, racing, session)}


def timed(modules: Mapping[str, CoModule], operators: Operators, most: int) -> tuple[dict[str, list[float]], int]:
    """Samples of all modules in turn, the operators by themselves in between, and the number of rounds."""
    operators.measure()
    calm_down()
    racing = race(modules)
    samples = racing.run(1)
    longest = max(float(np.median(times)) for times in samples.values()) * (1 + RUNS) / 1e3
    wanted = max(FEWEST, min(most, int(SECONDS / longest)))
    talk(f"running {wanted} rounds of {len(modules)} libraries")
    done = 1
    for part in range(IDEALS):
        count = wanted * (part + 1) // IDEALS - done
        for name, times in racing.run(count).items() if count > 0 else ():
            samples[name] += times
        done += max(count, 0)
        operators.measure()
    if racing.words:
        talk(racing.words)
    return samples, done


def compare(prepared: Prepared, session: Session, budget_s: float, most: int) -> tuple[Planners, dict[str, Plan]]:
    talk(f"{prepared.name}: {len(prepared.graph.operators)} operators")
    plans = make_plans(prepared, session, budget_s)
    paths = libraries_for(prepared, plans, session.tools, talk)
    first = {path: next(name for name in plans if paths[name] == path) for path in paths.values()}
    modules = {path: session.open(path) for path in first}
    wrong = {
        path: check_answer(first[path], module, prepared.samples, prepared.answers, quanta=prepared.quanta)[1]
        for path, module in modules.items()
    }
    operators = Operators(prepared, session)
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
        prepared.name, session.device, variants, operators.ideal_ms(), done, time.time()
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
    against = ", ".join(f"{TITLES[name]} {result.against(name):.3f}" for name in PLANNERS)
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
@click.argument("sources", metavar="[MODEL]...", nargs=-1)
@phone_options
@measuring_options
@click.option("--rounds", "most", type=click.IntRange(1), default=20, show_default=True, help="Interleaved rounds.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Keep results and plans here.")
@click.option("--again", is_flag=True, help="Measure the networks anew whose results are there.")
@click.option(
    "--table", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Print this folder's table."
)
@click.option("--html", type=OUTPUT_FILE, help="Write the table as a page to this file.")
@json_option
def main(
    sources: Sequence[str], phone: PhoneChoice, budget: float, most: int,
    out: Path | None, again: bool, table: Path | None, html: Path | None, as_json: bool,
) -> None:  # fmt: skip
    if table is None and not sources:
        sources = [f"zoo:{entry.name}" for entry in zoo.ENTRIES if entry.name != "small"]
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
            with phone.connect() as session:  # a session each: what one network leaves behind meets no other
                result, plans = compare(prepared, session, budget, most)
        except CodlError as error:
            talk(f"{source}: {error}")
            failed.append(error)
            continue
        talk(f"{source}:\n{said(result)}")
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            keep(out, name, result, plans)
        results.append(result)
    if results and html is not None:
        html.write_text(render_tables(page(results)), encoding="utf-8")
        talk(f"page: {html}")
    if results and as_json:
        print_json({"networks": results, "summary": summary(results)})
    elif results:
        click.echo(markdown(results))
    if failed:
        sys.exit(max(error.exit_code for error in failed))


if __name__ == "__main__":
    run_command(main, "planners.py")
