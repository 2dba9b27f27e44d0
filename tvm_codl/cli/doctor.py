"""``tvm-codl doctor``."""

from __future__ import annotations

import click

from tvm_codl.cli.options import json_option
from tvm_codl.cli.output import print_checks
from tvm_codl.device.health import run_checks


@click.command()
@json_option
def command(as_json: bool) -> int:
    """Check that everything needed is installed, and say how to fix what is not.

    Exits with 1 if a check fails, with 3 if only the device's part does.
    """
    failed = [check for check in print_checks(run_checks(), as_json) if not check.ok]
    return 0 if not failed else 3 if all(check.device for check in failed) else 1
