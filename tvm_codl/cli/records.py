"""``tvm-codl records``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import FILE, json_option, options, records_option
from tvm_codl.cli.output import print_json, print_table, talk
from tvm_codl.cli.output_file import OUTPUT_FILE

format_option = click.option(
    "--format", type=click.Choice(["autotvm", "csv"]), help="[default: csv for a name that ends in .csv, else autotvm]"
)


#: Which records are meant.
selecting = options(
    click.option("--device", metavar="NAME", help="The phone's name, as ls shows it."),
    click.option("--processor", type=click.Choice(["cpu", "gpu"]), help="Where it ran."),
    click.option("--kind", metavar="KIND", help="The operator's kind (conv2d, ...), or the task of a kernel."),
    click.option("--mode", type=click.Choice(["alone", "shared"]), help="What the other processor did."),
)


@click.group()
def command() -> None:
    """List, export, import and merge what was measured.

    Records are kept in one SQLite file: pieces of operators, the trials of tuned kernels, and whole
    plans.
    """


@command.command("ls")
@records_option
@selecting
@json_option
def ls(records: Path, as_json: bool, **chosen: Any) -> None:
    """Show how many records there are, by device, processor and kind."""
    from tvm_codl.records.exchange import open_store
    from tvm_codl.records.selection import Selection, groups
    from tvm_codl.report.table import make_table

    with open_store(records) as store:
        rows = groups(store, Selection(**chosen))
    if as_json:
        print_json({"records": str(records), "groups": rows})
        return
    table = make_table(["device", "processor", "kind"], ["count", "failed", "builds", "newest"], str(records))
    for group in rows:
        kind = group.kind if group.what == "piece" else f"{group.what} {group.kind}"
        newest = datetime.fromtimestamp(group.newest, UTC).strftime("%Y-%m-%d %H:%M") if group.newest else ""
        numbers = map(str, (group.count, group.failed, group.builds))
        table.add_row(group.device or "(unknown)", group.processor, kind, *numbers, newest)
    print_table(table)


@command.command("export")
@records_option
@selecting
@format_option
@click.option("-o", "--output", type=OUTPUT_FILE, help="Write to this file, not to stdout.")
def export(records: Path, format: Any, output: Path | None, **chosen: Any) -> None:
    """Write records as lines that AutoTVM reads, or as CSV (pieces of operators alone)."""
    from tvm_codl.records.exchange import export_file, open_store
    from tvm_codl.records.selection import Selection

    with open_store(records) as store:
        amount = export_file(store, output, format, Selection(**chosen))
    talk(f"{_words(amount)} written" + (f": {output}" if output else ""))


@command.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
@records_option
@format_option
@click.option("--skip-bad", is_flag=True, help="Leave out lines that are no record; without it they stop the import.")
@json_option
def import_files(files: tuple[Path, ...], records: Path, format: Any, skip_bad: bool, as_json: bool) -> None:
    """Add the records of files: AutoTVM's logs, TopHub's packages, CSV.

    A record that is known already is not added again.
    """
    from tvm_codl.records.exchange import import_file
    from tvm_codl.records.store import RecordStore

    done = {}
    with RecordStore(records) as store:
        for path in files:
            done[str(path)] = imported = import_file(store, path, format, skip_bad)
            talk(f"{path}: {_words(imported.read)} read, {_words(imported.new)} new, {imported.bad} bad lines")
            for reason in imported.reasons:
                talk(f"  {reason}")
    if as_json:
        print_json(done)


@command.command("merge")
@click.argument("stores", metavar="STORE...", nargs=-1, required=True, type=FILE)
@click.option("--into", required=True, type=FILE, metavar="STORE", help="The store that gets the others' records.")
@json_option
def merge_stores(stores: tuple[Path, ...], into: Path, as_json: bool) -> None:
    """Add other stores' records to one; what it has already is not added again."""
    from tvm_codl.records.exchange import merge
    from tvm_codl.records.store import RecordStore

    with RecordStore(into) as store:
        new = merge(stores, store)
    talk(f"{_words(new)} new: {into}")
    if as_json:
        print_json(new)


def _words(amount: Any) -> str:
    return f"{amount.pieces} pieces, {amount.kernels} kernels, {amount.plans} plans, {amount.profiles} profiles"
