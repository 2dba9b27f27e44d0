"""``tvm-codl check``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import FILE, json_option, shape_option
from tvm_codl.cli.output import print_json, print_table, talk
from tvm_codl.errors import CheckFailed


@click.command()
@click.argument("source", metavar="MODEL")
@shape_option
@click.option("-i", "--inputs", type=FILE, help="An .npz file with one array for each input.  [default: samples]")
@click.option("--rows", type=click.IntRange(1), default=20, show_default=True, help="Rows of the table.")
@json_option
def command(source: str, shape: Any, inputs: Path | None, rows: int, as_json: bool) -> None:
    """Compare MODEL, as it is imported, with the reference: the output of every operator, the worst first.

    Of a TFLite file the network's outputs alone are compared.  It is computed on this computer; no phone is needed.  Ends with exit code 4 where an output differs.
    """
    from rich.table import Table

    from tvm_codl.cli.run import read_inputs
    from tvm_codl.frontend.load import load_model
    from tvm_codl.measure.answers import TOLERANCE
    from tvm_codl.measure.checked_import import check_import
    from tvm_codl.measure.node_errors import node_errors

    model = load_model(source, dict(shape))
    values = read_inputs(inputs) if inputs else model.sample_inputs()
    nodes = node_errors(model, values)
    worst = sorted(nodes, key=lambda node: -node.max_rel_err)
    if as_json:
        print_json(worst)
    elif nodes:
        table = Table("operator", "node", "output", "relative error", title=f"{model.name}: {len(nodes)} outputs")
        for node in worst[:rows]:
            table.add_row(node.operator, node.node, node.output, f"{node.max_rel_err:.1e}")
        print_table(table)
    check_import(model, values if inputs else None)
    wrong = [node for node in nodes if not node.max_rel_err <= TOLERANCE]
    if wrong:
        raise CheckFailed(
            f"{len(wrong)} operators of {model.name} differ from the reference, though its outputs do not",
            f"{wrong[0].operator} {wrong[0].node!r} is the first, by {wrong[0].max_rel_err:.2e}",
            "give inputs of your own with --inputs: random values may meet a sharp edge of an operator",
        )
    talk(f"{model.name}: the answer is the reference's")
