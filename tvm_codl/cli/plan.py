"""``tvm-codl plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import json_option, load, measuring_options, model_options, named_plan, phone_options
from tvm_codl.cli.output import talk


@click.command()
@model_options
@phone_options
@measuring_options
@click.option(
    "--plan", "given", default="", metavar="PLAN", help="Check and show this plan file instead of making one."
)
@click.option("--explain", "explained", is_flag=True, help="Print one line an operator, with its reason.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the plan to this file.")
@json_option
def command(
    source: str, shape: Any, reach: Any, budget: float, records: Path | None, tuning_records: Path | None,
    given: str, explained: bool, output: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Measure a phone and plan where each operator of MODEL (an ONNX file or zoo:NAME) runs.

    The plan is JSON that can be edited by hand; it goes to stdout unless -o names a file or --explain asks for a table.
    """
    model = load(source, shape)
    from tvm_codl.plan.explain import explain
    from tvm_codl.plan.files import dump_plan, plan_json
    from tvm_codl.workflow import make_plan, prepare

    prepared = prepare(model)
    if given:
        plan = named_plan(given, prepared)
    else:
        with reach() as phone:
            plan = make_plan(prepared, phone, budget_s=budget, log=talk, records=records, tuning_records=tuning_records)
    if output is not None:
        dump_plan(plan, output)
        talk(f"plan: {output}")
    if explained and not as_json:
        click.echo(explain(plan))
    elif as_json or output is None:
        click.echo(plan_json(plan), nl=False)
