"""``tvm-codl build``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import json_option, load, measuring_options, model_options, named_plan, phone_options
from tvm_codl.cli.output import print_json, talk


@click.command()
@model_options
@phone_options
@measuring_options
@click.option(
    "--plan", "given", default="", metavar="PLAN", help="A plan file, cpu-only or gpu-only.  [default: make one]"
)
@click.option(
    "--adaptive", is_flag=True, help="Also carry plans for a busy CPU and a throttled GPU, and switch at run time."
)
@click.option("--target", type=click.Choice(["host"]), default="host", help="What the library is built for.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("model.so"), show_default=True
)
@json_option
def command(
    source: str, shape: Any, reach: Any, budget: float, records: Path | None, tuning_records: Path | None,
    given: str, adaptive: bool, target: str, output: Path, as_json: bool,
) -> None:  # fmt: skip
    """Build one shared library that runs MODEL (an ONNX file or zoo:NAME) on both processors of the phone."""
    model = load(source, shape)
    from tvm_codl.workflow import build_library, make_adaptive, make_plan, prepare

    prepared = prepare(model)
    plan = named_plan(given, prepared) if given else None
    with reach() as phone:
        states = (
            make_adaptive(
                prepared, phone, plan=plan, budget_s=budget, log=talk, records=records, tuning_records=tuning_records
            )
            if adaptive
            else ()
        )
        if states:
            plan = states[0].plan
        elif plan is None:
            plan = make_plan(prepared, phone, budget_s=budget, log=talk, records=records, tuning_records=tuning_records)
        path = build_library(prepared, plan, phone.profile, output, talk, tuning_records, states)
        device = phone.profile.name
    if as_json:
        about = {"library": str(path), "bytes": path.stat().st_size, "model": prepared.name, "device": device}
        print_json({**about, **({"plans": [one.name for one in states]} if states else {})})
    else:
        click.echo(path)
