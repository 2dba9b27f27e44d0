"""``tvm-codl plans``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import (
    FILE,
    complete_file,
    json_option,
    model_options,
    named_plan,
    read_operators,
    records_option,
    shape_option,
    tuning_records_option,
)
from tvm_codl.cli.output import print_json, talk


@click.group()
def command() -> None:
    """Compare plans, and check those that were edited by hand."""


@command.command("diff")
@click.argument("first", metavar="A.json")
@click.argument("second", metavar="B.json")
@click.argument("source", metavar="[MODEL]", required=False, shell_complete=complete_file)
@shape_option
@records_option
@tuning_records_option
@json_option
def diff(
    first: str, second: str, source: str | None, shape: Any, records: Path, tuning_records: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show operator by operator where two plans differ, with the times that they state.

    With MODEL (an ONNX or TFLite file, or zoo:NAME) both are checked, and predicted anew by what was kept of A's phone; cpu-only and
    gpu-only are plans too then.
    """
    from tvm_codl.plan.explain.difference import compare, difference_text
    from tvm_codl.plan.files import load_plan

    prices = None
    if source is None:
        a, b = load_plan(first), load_plan(second)
    else:
        from tvm_codl.measure.offline_costs import NoOfflineCosts, load_costs
        from tvm_codl.plan.explain.prices import Prices

        prepared = read_operators(source, shape)
        a, b = named_plan(first, prepared), named_plan(second, prepared)
        try:
            device = a.device or b.device
            prices = Prices.of(load_costs(prepared, records, tuning_records, device, talk).problem, [a, b])
        except NoOfflineCosts as missing:
            talk(f"times as the plans state them: {missing}")
    difference = compare(a, b, prices)
    if as_json:
        print_json(difference)
    else:
        click.echo(difference_text(difference, (first, second)))


@command.command("verify")
@model_options
@click.argument("plan", metavar="PLAN", type=FILE)
@records_option
@json_option
def verify(source: str, shape: Any, plan: Path, records: Path, as_json: bool) -> None:
    """Check that PLAN is legal for MODEL (an ONNX or TFLite file, or zoo:NAME).

    Its settings are checked by the profile of its phone, as the records have it; by any phone's where they have none.

    Exits with 1 for an illegal plan, and says which operator or setting is wrong and what it may be.
    """
    from tvm_codl.device.generic import generic_profile
    from tvm_codl.measure.choices import check_settings
    from tvm_codl.measure.offline_costs import load_profile

    checked = named_plan(str(plan), read_operators(source, shape))
    profile = load_profile(checked.device, records)
    check_settings(checked.settings, profile or generic_profile("android-arm64"))
    if profile is None and checked.settings.words() != "default":
        talk(
            f"nothing was measured on {checked.device or 'its phone'} here: the phone itself says whether it can take its settings"
        )
    count = {on: sum(o.placement.on == on for o in checked.operators) for on in ("cpu", "gpu", "split")}
    if as_json:
        print_json({"legal": True, "operators": len(checked.operators), **count})
        return
    words = ", ".join(f"{number} {on}" for on, number in count.items() if number)
    click.echo(f"{plan} is legal: {len(checked.operators)} operators, {words}")
