"""``python -m benchmarks.phones FOLDER``: judges the cost model's learner on measurements of phones' GPUs."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.phones.evaluation import evaluate_phones
from tvm_codl.cli.main import main
from tvm_codl.cli.options import FILE, json_option
from tvm_codl.cli.output import print_json, print_table, talk
from tvm_codl.cli.output_file import OUTPUT_FILE
from tvm_codl.report import evaluation as report


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.option("--gpus", type=FILE, help="The facts of the phones' GPUs.  [default: FOLDER/gpus.json]")
@click.option("--quick", is_flag=True, help="Hold out one fifth only.")
@click.option("--picture", type=OUTPUT_FILE, help="Draw predicted against measured times into this SVG file.")
@json_option
def evaluate(folder: Path, gpus: Path | None, quick: bool, picture: Path | None, as_json: bool) -> None:
    """Evaluate the learner on the measurements of phones in FOLDER (gpu_ops.csv, models_e2e.csv)."""
    evaluation = evaluate_phones(folder, gpus, quick=quick, log=talk)
    title = "phones' GPUs, shapes held out"
    if as_json:
        print_json(evaluation)
    else:
        print_table(report.table(evaluation.results, title))
    if picture is not None:
        picture.write_text(report.picture(evaluation.scatter, title), encoding="utf-8")
        talk(f"picture: {picture}")


if __name__ == "__main__":
    main(evaluate, "benchmarks.phones")
