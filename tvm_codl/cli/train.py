"""``tvm-codl train``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import chosen_records_options, json_option, read_network, shape_option
from tvm_codl.cli.output import print_json, talk
from tvm_codl.cli.output_file import OUTPUT_FILE


@click.command()
@click.argument("models", metavar="[MODELS]...", nargs=-1)
@shape_option
@chosen_records_options
@click.option("-o", "--output", type=OUTPUT_FILE, required=True, help="Write the model to this file.")
@click.option("--no-check", is_flag=True, help="Do not hold shapes out to find the model's own error.")
@json_option
def command(
    models: tuple[str, ...], shape: Any, records: Path, output: Path, device: str, build: str,
    tuning_records: Path | None, no_check: bool, as_json: bool,
) -> None:  # fmt: skip
    """Learn what operators cost from the records; of MODELS' operators only, where models are named.

    The model file is JSON and says what it was learned from and how well it predicts shapes that were held out.
    """
    from tvm_codl.cost.training import choose, train
    from tvm_codl.kernels.reuse import load_tunings

    operators = None
    if models:
        from tvm_codl.records.workload import Workload

        graphs = [read_network(source, shape).graph for source in models]
        operators = {Workload.of(operator, graph).key for graph in graphs for operator in graph.operators}
    chosen = choose(records, device, build, operators, talk)
    model = train(chosen, records, load_tunings([tuning_records] if tuning_records else []), not no_check, talk)
    model.save(output)
    talk(f"model: {output}")
    if as_json:
        print_json(model.provenance)
