"""``tvm-codl check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_codl.cli.options import (
    FILE,
    PhoneChoice,
    complete_file,
    json_option,
    named_plan,
    phone_options,
    records_option,
    shape_option,
    tuning_records_option,
)
from tvm_codl.cli.output import print_json, print_table, talk
from tvm_codl.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from tvm_codl.measure.checked_plan import PlanCheck
    from tvm_codl.measure.host_outputs import Values
    from tvm_codl.relay.model import LoadedModel

UNLIKE = "give inputs of your own with --inputs: random values may meet a sharp edge of an operator"


@click.command()
@click.argument("source", metavar="MODEL", default="", shell_complete=complete_file)
@shape_option
@phone_options
@records_option
@tuning_records_option
@click.option(
    "--plan", "given", default="", metavar="PLAN",
    help="Check this on the phone: a plan file, cpu-only, gpu-only, or a library (.so) of MODEL.",
)  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="Print which operators of ONNX are supported, and end.")
@click.option("-i", "--inputs", type=FILE, help="An .npz file with one array for each input.  [default: samples]")
@click.option("--rows", type=click.IntRange(1), default=20, show_default=True, help="Rows of the table.")
@json_option
def command(
    source: str, shape: Any, phone: PhoneChoice, given: str, listing: bool, inputs: Path | None, rows: int, as_json: bool,
) -> None:  # fmt: skip
    """Compare MODEL, as it is imported, with the reference: the output of every operator, the worst first.

    That is computed on this computer; no phone is needed.  With --plan the network runs on the phone, and the table has
    what each operator adds to the error there.  Ends with exit code 4 where an output differs.
    """
    if listing:
        _list_operators(as_json)
        return
    if not source:
        raise UsageError("no MODEL is named", next="name an .onnx or .tflite file or zoo:NAME, or give --list")
    from tvm_codl.cli.run import read_inputs
    from tvm_codl.frontend.load import load_model
    from tvm_codl.measure.checked_import import check_import

    if phone.named and not given:
        raise UsageError("without a plan nothing runs on a phone", next="add --plan PLAN, cpu-only or gpu-only")
    model = load_model(source, dict(shape))
    values = read_inputs(inputs) if inputs else model.sample_inputs()
    if given:
        check_import(model, values if inputs else None, talk)
        _check_plan(model, phone, given, values, rows, as_json)
    else:
        _check_nodes(model, values, rows, as_json, own=inputs is not None)


def _check_nodes(model: LoadedModel, values: Values, rows: int, as_json: bool, own: bool) -> None:
    from rich.table import Table

    from tvm_codl.measure.answers import TOLERANCE
    from tvm_codl.measure.checked_import import check_import
    from tvm_codl.measure.node_errors import node_errors

    nodes = node_errors(model, values)
    if as_json:
        print_json(sorted(nodes, key=lambda node: -node.max_rel_err))
    else:
        table = Table("operator", "node", "output", "relative error", title=f"{model.name}: {len(nodes)} outputs")
        for node in sorted(nodes, key=lambda node: -node.max_rel_err)[:rows]:
            table.add_row(node.operator, node.node, node.output, f"{node.max_rel_err:.1e}")
        print_table(table)
    check_import(model, values if own else None)
    wrong = [node for node in nodes if not node.max_rel_err <= TOLERANCE]
    if wrong:
        raise CheckFailed(
            f"{len(wrong)} operators of {model.name} differ from the reference, though its outputs do not",
            f"{wrong[0].operator} {wrong[0].node!r} is the first, by {wrong[0].max_rel_err:.2e}",
            UNLIKE,
        )
    talk(f"{model.name}: the answer is the reference's")


def _check_plan(model: LoadedModel, phone: PhoneChoice, given: str, values: Values, rows: int, as_json: bool) -> None:
    from rich.table import Table

    from tvm_codl.measure.checked_plan import check_plan
    from tvm_codl.plan.reasons import placement_words
    from tvm_codl.relay.pipeline import prepare

    prepared = prepare(model)
    plan = Path(given) if given.endswith(".so") else named_plan(given, prepared)
    with phone.connect() as session:
        found = check_plan(prepared, plan, session, values)
    if as_json:
        print_json(found)
    else:
        heads = ("operator", "placement", "error", "of its own", "share of all")
        table = Table(*heads, title=f"{model.name}: relative error {found.max_rel_err:.1e}, allowed {found.allowed:g}")
        for line in found.operators[:rows]:
            errors = (f"{line.max_rel_err:.1e}", f"{line.own:.1e}", f"{line.share:.1%}")
            table.add_row(line.name, placement_words(line.placement), *errors)
        print_table(table)
    _judge(found, model.name, given)


def _judge(found: PlanCheck, name: str, given: str) -> None:
    """Raises :class:`CheckFailed`, with what to do, where an operator or the answer is wrong."""
    from tvm_codl.plan.reasons import placement_words

    if found.wrong:
        told = "; ".join(f"{w.name} ({placement_words(w.placement)}) by {w.own:.2e}" for w in found.wrong)
        elsewhere = " ".join(f"--what-if {w.name}={'gpu' if w.placement.on == 'cpu' else 'cpu'}" for w in found.wrong)
        start = "" if given.endswith(".so") else f"--plan {given} "
        raise CheckFailed(
            f"{len(found.wrong)} operators of {name} compute wrongly on the phone",
            f"{told}; {found.allowed:g} is allowed, the answer is off by {found.max_rel_err:.2e}",
            f"place them elsewhere: tvm-codl plan MODEL {start}{elsewhere} -o PLAN; then check that plan",
        )
    if not found.max_rel_err <= found.allowed:
        raise CheckFailed(
            f"{name} is wrong by that plan, though each of its operators is right when its result is kept",
            f"relative error {found.max_rel_err:.2e}, {found.allowed:g} is allowed",
            "see which processor it is with --plan cpu-only and --plan gpu-only, and plan again: tvm-codl plan MODEL",
        )
    talk(f"{name}: the answer on the phone is the reference's, to {found.max_rel_err:.1e}")


def _list_operators(as_json: bool) -> None:
    from rich.table import Table

    from tvm_codl.frontend.support_table import support_table, types

    rows = support_table()
    if as_json:
        print_json({"types": types(), "operators": rows})
        return
    table = Table("operator", "since", "support", "remarks", title=f"ONNX operators, of {', '.join(types())}")
    for row in rows:
        table.add_row(row.operator, str(row.since), row.support, row.remarks)
    print_table(table)
