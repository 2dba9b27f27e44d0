"""``tvm-codl measure``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import (
    PhoneChoice,
    json_option,
    model_options,
    phone_options,
    read_network,
    records_option,
    tuning_records_option,
)
from tvm_codl.cli.output import print_json, talk
from tvm_codl.cli.output_file import OUTPUT_FILE


@click.command()
@model_options
@phone_options
@click.option(
    "--budget", default="5min", show_default=True, metavar="N|TIME",
    help="A number of measurements (200), or a time (90s, 5min, 1h).",
)  # fmt: skip
@click.option("--grid", is_flag=True, help="Measure every operator along each axis in tenths instead: no budget.")
@records_option
@tuning_records_option
@click.option(
    "--retry-failed", is_flag=True,
    help="Also measure again, within the budget, what failed on this phone before; it is not tried again otherwise.",
)  # fmt: skip
@click.option("-o", "--output", type=OUTPUT_FILE, help="Write the plan that it ends in to this file.")
@json_option
def command(
    source: str, shape: Any, phone: PhoneChoice, budget: str, grid: bool, retry_failed: bool, output: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Measure MODEL (an ONNX or TFLite file, or zoo:NAME) on a phone, where a measurement could change the plan.

    Measurements are kept as they come.  After an interruption the same command goes on from there: what is on record costs
    nothing.  The plan is the predicted best; `tvm-codl plan` also runs it against each processor alone.
    """
    from tvm_codl.errors import UsageError
    from tvm_codl.measure.budget import Budget

    allowed = Budget.parse(budget)
    if grid and output is not None:
        raise UsageError(
            "--grid makes no plan", next="run tvm-codl plan MODEL -o plan.json afterwards: it reads the records"
        )
    phone.start()
    from tvm_codl.plan.files import dump_plan

    with phone.connect_later() as session:
        prepared = read_network(source, shape, None if grid else lambda: session().compile_ahead())
        if grid:
            records = session().measure_grid(prepared, retry_failed)
            failed = sum(not record.ok for record in records)
            if as_json:
                print_json({"model": prepared.name, "records": len(records), "failed": failed})
            else:
                click.echo(f"{len(records)} records, {failed} of them failed")
            return
        guided = session().measure(prepared, allowed, retry_failed)
    if as_json:
        print_json(
            {
                "model": prepared.name,
                "measured": guided.measured,
                "ended": guided.why,
                "predicted_ms": guided.plan.predicted_ms,
                "rounds": guided.rounds,
                "plan": str(output or ""),
            }
        )
    else:
        click.echo(f"{guided.measured} measurements, predicted {guided.plan.predicted_ms:.2f} ms ({guided.why})")
    if output is not None:
        dump_plan(guided.plan, output)
        talk(f"plan: {output}")
