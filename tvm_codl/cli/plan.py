"""``tvm-codl plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_codl.cli.options import FILE, PhoneChoice, effort, named_plan, planning_options, read_operators
from tvm_codl.cli.output import print_json, talk
from tvm_codl.cli.output_file import OUTPUT_FILE
from tvm_codl.errors import UsageError

if TYPE_CHECKING:
    from tvm_codl.plan.explain.explanation import Explanation
    from tvm_codl.plan.plan import Plan
    from tvm_codl.relay.prepared import Prepared


@click.command()
@planning_options
@click.option(
    "--explain", "explained", is_flag=True,
    help="Print why each operator is where it is, and what its second choice would cost.",
)  # fmt: skip
@click.option(
    "--what-if", "changes", multiple=True, metavar="OP=PLACEMENT",
    help="Plan again with an operator (its number or name) forced to cpu, gpu or a cut (height@12, channels@64). "
    "May be given several times.",
)  # fmt: skip
@click.option(
    "--objective", type=click.Choice(["latency", "energy"]), default="latency", show_default=True,
    help="What to make small.  Energy is a model by a power table, not a measurement.",
)  # fmt: skip
@click.option(
    "--power", type=FILE,
    help="The phone's power table, for --objective energy: idle_w, cpu_w, gpu_w and both_w in watts, as YAML or JSON.",
)  # fmt: skip
@click.option(
    "--settings", default="default", show_default=True, metavar="auto|default|FILE",
    help="Threads, cores, flush period and float type: measured on the phone, or taken from a JSON file.",
)  # fmt: skip
@click.option("-o", "--output", type=OUTPUT_FILE, help="Write the plan to this file.")
@click.option(
    "--annotate", "annotated", type=OUTPUT_FILE, metavar="FILE",
    help="Write a copy of MODEL, an ONNX file, whose nodes say where the plan runs them: Netron shows it.",
)  # fmt: skip
def command(
    source: str, shape: Any, phone: PhoneChoice, budget: float, given: str, explained: bool, changes: tuple[str, ...], objective: str, power: Path | None, settings: str,
    output: Path | None, annotated: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Measure a phone and plan where each operator of MODEL (an ONNX or TFLite file, or zoo:NAME) runs.

    The plan is JSON that can be edited by hand; it goes to stdout unless -o names a file or --explain asks for a table.

    --what-if, and --explain with --plan, work from the records of a phone that was measured before.
    """
    _check_usage(bool(given), explained, bool(changes), objective, power)
    from tvm_codl.device.power import read_power
    from tvm_codl.measure.offline_costs import find_costs
    from tvm_codl.plan.energy import Energy
    from tvm_codl.plan.explain.explanation import explanation_text
    from tvm_codl.plan.explain.what_if import parse_asked, what_if, what_if_text
    from tvm_codl.plan.files import dump_plan, plan_json
    from tvm_codl.records.settings import parse_settings

    wanted = parse_settings(settings)  # before anything is measured: a bad file is an error now
    measures = not given and not changes
    if measures:
        phone.start()
    changed = None
    with phone.connect_later() as session:
        prepared = read_operators(source, shape, (lambda: session().compile_ahead()) if measures else None)
        if annotated is not None:
            from tvm_codl.measure.annotated_file import annotate_file, check_annotatable

            check_annotatable(prepared.model, annotated)
        table = read_power(power) if power else None
        plan = named_plan(given, prepared) if given else None
        asked = parse_asked(changes, prepared.graph, prepared.axes)
        if asked:
            costs = find_costs(
                prepared, phone.connect, phone.records, phone.tuning_records, device=plan.device if plan else "",
                named=phone.named, budget_s=budget, log=talk,
            )  # fmt: skip
            energy = None
            if objective == "energy":
                from tvm_codl.measure.planning import required_power

                energy = Energy(required_power(table, costs.profile))
            changed = what_if(costs.problem, asked, plan, energy)
            plan = changed.plan
        elif plan is None and objective == "energy":
            plan = session().plan_energy(prepared, budget, table)
        elif plan is None:
            plan = session().plan(prepared, budget, **effort())
        if settings != "default":
            if output is not None:  # searching may fail
                dump_plan(plan, output)
            plan = session().apply_settings(prepared, plan, wanted)
    if plan.predicted_mj:
        talk(f"predicted {plan.predicted_mj:.3f} mJ a run: by the power table, a model and not a measurement")
    if changed is not None:
        print_json(changed) if as_json else click.echo(what_if_text(changed))
    elif explained:
        told = _explain(plan, prepared, phone)
        print_json(told) if as_json else click.echo(explanation_text(told))
    elif as_json or output is None:
        click.echo(plan_json(plan), nl=False)
    if output is not None:
        dump_plan(plan, output)
        talk(f"plan: {output}")
    if annotated is not None:
        copy = annotate_file(prepared, plan, annotated)
        talk(f"{annotated}: {copy.annotated} of {copy.nodes} nodes say where they run")


def _check_usage(given: bool, explained: bool, changed: bool, objective: str, power: Path | None) -> None:
    if power is not None and objective != "energy":
        raise UsageError("--power says what energy costs", next="add --objective energy")
    if given and not changed and objective != "latency":
        raise UsageError("--plan makes no plan, so it has no objective", next="leave out --plan or --objective")
    if explained and changed:
        raise UsageError(
            "--what-if prints what changes, --explain the whole plan",
            next="write the changed plan with -o, then explain it: tvm-codl plan MODEL --plan PLAN --explain",
        )


def _explain(plan: Plan, prepared: Prepared, phone: PhoneChoice) -> Explanation:
    """Explains by the records of the plan's phone; without them, by what the plan itself states."""
    from tvm_codl.measure.offline_costs import NoOfflineCosts, load_costs
    from tvm_codl.plan.explain.explanation import explain, restate
    from tvm_codl.plan.explain.prices import Prices

    try:
        costs = load_costs(prepared, phone.records, phone.tuning_records, plan.device, talk)
    except NoOfflineCosts as missing:
        talk(f"only what the plan itself states, without second choices: {missing}")
        return restate(plan)
    return explain(plan, Prices.of(costs.problem, [plan]), costs.model)
