"""``tvm-codl cache``."""

from __future__ import annotations

import shutil

import click
import msgspec
from rich.table import Table

from tvm_codl.cli.options import json_option
from tvm_codl.cli.output import print_json, print_table, talk
from tvm_codl.paths import cache_dir

#: What a command makes again where it is missing.  What was measured is not among them.
MADE_AGAIN = {
    "compiled": "kernels, one file each, and regions of plans",
    "libraries": "linked libraries of plans and measurements",
    "models": "cost models that were fitted to records",
    "networks": "operators, sample inputs and answers of networks that were imported",
    "kernels": "PoCL's compiled OpenCL programs",
}


class Folder(msgspec.Struct, frozen=True):
    """A folder of the cache; ``bytes`` of all files in it."""

    name: str
    holds: str
    files: int
    bytes: int


@click.command()
@click.option("--clear", is_flag=True, help="Remove them.  Measurements, plans and checks of answers stay.")
@json_option
def command(clear: bool, as_json: bool) -> int:
    """Show what is kept of earlier builds, or clear it."""
    folders = []
    for name, holds in MADE_AGAIN.items():
        sizes = [path.stat().st_size for path in (cache_dir() / name).rglob("*") if path.is_file()]
        folders.append(Folder(name, holds, len(sizes), sum(sizes)))
        if clear:
            shutil.rmtree(cache_dir() / name, ignore_errors=True)
    if as_json:
        print_json({"folder": str(cache_dir()), "folders": folders, "cleared": clear})
        return 0
    table = Table("folder", "files", "MB", "what it holds")
    for each in folders:
        table.add_row(each.name, str(each.files), f"{each.bytes / 1e6:.1f}", each.holds)
    print_table(table)
    talk(f"{'cleared in' if clear else 'all in'} {cache_dir()}")
    return 0
