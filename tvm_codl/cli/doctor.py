"""``tvm-codl doctor``."""

from __future__ import annotations

import click

from tvm_codl.cli.options import json_option
from tvm_codl.cli.output import print_json
from tvm_codl.device.health import run_checks


@click.command()
@json_option
def command(as_json: bool) -> int:
    """Check that everything needed is installed, and say how to fix what is not.

    Exits with 1 if a check fails, with 3 if only the device's part does.
    """
    results = []
    for result in run_checks():
        results.append(result)
        if not as_json:
            click.echo(f"{'ok  ' if result.ok else 'FAIL'}  {result.name}: {result.found}")
            if not result.ok and result.remedy:
                click.echo(f"      next: {result.remedy}")
    if as_json:
        print_json(results)
    failed = [result for result in results if not result.ok]
    return 0 if not failed else 3 if all(result.device for result in failed) else 1
