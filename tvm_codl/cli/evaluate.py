"""``tvm-codl evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tvm_codl.cli.options import FILE, chosen_records_options, json_option
from tvm_codl.cli.output import print_json, print_table, talk
from tvm_codl.cli.output_file import OUTPUT_FILE
from tvm_codl.errors import UserError

if TYPE_CHECKING:
    from tvm_codl.cost.evaluation.metrics import Result, Scatter


@click.command()
@chosen_records_options
@click.option("--model", "model_file", type=FILE, help="Judge this model, on what it was not trained on.")
@click.option(
    "--picture", type=OUTPUT_FILE, help="Draw predicted against measured times, and the errors, into this SVG file."
)
@click.option("--html", type=OUTPUT_FILE, help="Write a page about the errors, with the picture, to this file.")
@json_option
def command(
    records: Path, model_file: Path | None, device: str, build: str, tuning_records: Path | None,
    picture: Path | None, html: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Say how well operators' times are predicted, next to CoDL's linear predictor, a roofline and FLOPs.

    Operator shapes are held out whole, all their pieces with them, a fifth at a time.
    """
    from tvm_codl.report import evaluation as report
    from tvm_codl.report.tables_page import render_tables

    results, scatter, title, value = _evaluate(records, model_file, device, build, tuning_records)
    if as_json:
        print_json(value)
    else:
        print_table(report.table(results, title))
    if picture is not None:
        picture.write_text(report.picture(scatter, title), encoding="utf-8")
        talk(f"picture: {picture}")
    if html is not None:
        html.write_text(render_tables(report.page(results, scatter, title)), encoding="utf-8")
        talk(f"page: {html}")


def _evaluate(
    records: Path, model_file: Path | None, device: str, build: str, tuning_records: Path | None
) -> tuple[list[Result], list[Scatter], str, object]:
    from tvm_codl.cost.evaluation.held_out import hold_out, judge
    from tvm_codl.cost.model import CostModel
    from tvm_codl.cost.training import choose
    from tvm_codl.kernels.reuse import load_tunings

    model = CostModel.load(model_file) if model_file is not None else None
    own = model.provenance.get("device", "") if model is not None else ""
    if device and own and device != own:
        raise UserError(f"the model is of {own}", f"--device {device}", "leave out --device, or --model")
    chosen = choose(records, device or own, build, log=talk)
    talk(f"{len(chosen.records)} records of {chosen.device}, build {chosen.build}")
    if model is not None and model_file is not None:
        judged = judge(model, chosen.samples, chosen.device)
        return judged.results, judged.scatter, f"{model_file.name} on what it was not trained on", judged
    judged = hold_out(
        chosen.samples, chosen.facts, load_tunings([tuning_records] if tuning_records else []), chosen.device
    )
    shapes = ", ".join(f"{n} shapes on the {p}" for p, n in judged.shapes.items())
    return judged.results, judged.scatter, f"shapes held out whole: {shapes}", judged
