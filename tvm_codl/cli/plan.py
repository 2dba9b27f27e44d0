"""``tvm-codl plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_codl.cli.options import FILE, json_option, load, measuring_options, model_options, named_plan, phone_options
from tvm_codl.cli.output import print_json, talk
from tvm_codl.cli.output_file import OUTPUT_FILE
from tvm_codl.errors import UsageError

if TYPE_CHECKING:
    from tvm_codl.measure.workflow import Prepared
    from tvm_codl.plan.explain.explanation import Explanation
    from tvm_codl.plan.plan import Plan


@click.command()
@model_options
@phone_options
@measuring_options
@click.option(
    "--plan", "given", default="", metavar="PLAN", help="Check and show this plan file instead of making one."
)
@click.option(
    "--explain",
    "explained",
    is_flag=True,
    help="Print why each operator is where it is, and what its second choice would cost.",
)
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
@json_option
def command(
    source: str, shape: Any, reach: Any, budget: float, records: Path | None, tuning_records: Path | None,
    given: str, explained: bool, changes: tuple[str, ...], objective: str, power: Path | None, settings: str,
    output: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Measure a phone and plan where each operator of MODEL (an ONNX file or zoo:NAME) runs.

    The plan is JSON that can be edited by hand; it goes to stdout unless -o names a file or --explain asks for a table.

    --what-if, and --explain with --plan, ask no phone that was measured before: what was found there is kept.
    """
    _check_usage(bool(given), explained, bool(changes), objective, power)
    model = load(source, shape)
    from tvm_codl.device.power import read_power
    from tvm_codl.measure.offline_costs import energy_plan, known, needed
    from tvm_codl.measure.settings_search import settings_option, settled
    from tvm_codl.measure.workflow import make_plan, prepare
    from tvm_codl.plan.energy import Energy
    from tvm_codl.plan.explain.explanation import explanation_text
    from tvm_codl.plan.explain.what_if import parse_asked, what_if, what_if_text
    from tvm_codl.plan.files import dump_plan, plan_json

    wanted = settings_option(settings)  # before anything is measured: what is wrong with the file shows now
    prepared = prepare(model)
    table = read_power(power) if power else None
    stores: dict[str, Any] = {"records": records, "tuning_records": tuning_records}
    plan = named_plan(given, prepared) if given else None
    asked = parse_asked(changes, prepared.graph, prepared.axes)
    changed = None
    if asked:
        options = click.get_current_context().params
        named = bool(options["rpc_tracker"] or options["rpc_proxy"])
        device = plan.device if plan else ""
        costs = known(prepared, reach, device=device, named=named, budget_s=budget, log=talk, **stores)
        energy = Energy(needed(table, costs.profile)) if objective == "energy" else None
        changed = what_if(costs.problem, asked, plan, energy)
        plan = changed.plan
    elif plan is None:
        with reach() as phone:
            if objective == "energy":
                plan = energy_plan(prepared, phone, table, budget_s=budget, log=talk, **stores)
            else:
                plan = make_plan(prepared, phone, budget_s=budget, log=talk, **stores)
    if settings != "default":
        if output is not None:  # settling may fail
            dump_plan(plan, output)
        with reach() as phone:
            plan = settled(prepared, plan, wanted, phone, tuning_records, talk)
    if plan.predicted_mj:
        talk(f"predicted {plan.predicted_mj:.3f} mJ a run: by the power table, a model and not a measurement")
    if changed is not None:
        print_json(changed) if as_json else click.echo(what_if_text(changed))
    elif explained:
        told = _explained(plan, prepared, stores)
        print_json(told) if as_json else click.echo(explanation_text(told))
    elif as_json or output is None:
        click.echo(plan_json(plan), nl=False)
    if output is not None:
        dump_plan(plan, output)
        talk(f"plan: {output}")


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


def _explained(plan: Plan, prepared: Prepared, stores: dict[str, Any]) -> Explanation:
    """By what was kept of the plan's phone; else what the plan says of itself."""
    from tvm_codl.measure.offline_costs import NotKept, recall
    from tvm_codl.plan.explain.explanation import explain, restate
    from tvm_codl.plan.explain.prices import Prices

    try:
        costs = recall(prepared, device=plan.device, log=talk, **stores)
    except NotKept as missing:
        talk(f"only what the plan says of itself, without second choices: {missing}")
        return restate(plan)
    return explain(plan, Prices.of(costs.problem, [plan]), costs.model)
