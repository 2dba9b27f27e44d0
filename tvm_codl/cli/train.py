"""``tvm-codl train``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import ShapeType, json_option, load
from tvm_codl.cli.output import print_json, talk

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("models", metavar="[MODELS]...", nargs=-1)
@click.option(
    "--shape", type=ShapeType(), multiple=True, help="Shape of an input that is dynamic in a file: x:[1,3,320,320]."
)
@click.option("--records", type=FILE, help="The file that keeps the measurements.  [default: in the cache folder]")
@click.option("-o", "--output", type=FILE, required=True, help="Write the model to this file.")
@click.option("--device", default="", metavar="NAME", help="The phone to predict.  [default: the one measured last]")
@click.option("--build", default="", metavar="ID", help="The build whose records to use.  [default: the newest]")
@click.option("--tuning-records", type=FILE, help="AutoTVM records that the build used, beside the shipped ones.")
@click.option("--no-check", is_flag=True, help="Do not hold shapes out to find the model's own error.")
@json_option
def command(
    models: tuple[str, ...], shape: Any, records: Path | None, output: Path, device: str, build: str,
    tuning_records: Path | None, no_check: bool, as_json: bool,
) -> None:  # fmt: skip
    """Learn what operators cost from the records; of MODELS' operators only, where models are named.

    The model file is JSON and says what it was learned from and how well it predicts shapes that were held out.
    """
    from tvm_codl.cli.evaluate import stored, tunings
    from tvm_codl.cost.training import choose, train

    operators = None
    if models:
        from tvm_codl.records.workload import Workload
        from tvm_codl.workflow import prepare

        graphs = [prepare(load(source, shape)).graph for source in models]
        operators = {Workload.of(operator, graph).key for graph in graphs for operator in graph.operators}
    path = stored(records)
    chosen = choose(path, device, build, operators, talk)
    model = train(chosen, path, tunings(tuning_records), not no_check, talk)
    model.save(output)
    talk(f"model: {output}")
    if as_json:
        print_json(model.provenance)
