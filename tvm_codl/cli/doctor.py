"""``tvm-codl doctor``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tvm_codl.cli.options import json_option
from tvm_codl.cli.output import print_checks
from tvm_codl.device.health import Check, run_checks


@click.command()
@json_option
def command(as_json: bool) -> int:
    """Check that everything needed is installed, and say how to fix what is not.

    Exits with 1 if a check fails, with 3 if only the device's part does.
    """
    failed = [check for check in print_checks(run_checks(), as_json) if not check.ok]
    if not as_json:
        click.echo(_next_step(failed))
    return 0 if not failed else 3 if all(check.device for check in failed) else 1


def _next_step(failed: Sequence[Check]) -> str:
    """The first remedy comes first: later checks need what earlier ones check."""
    if not failed:
        return "All is well. Run: tvm-codl bench zoo:resnet18"
    remedy = next((check.remedy for check in failed if check.remedy), "")
    if not remedy:
        return f"{failed[0].name} failed, and no command is known to mend it."
    return f"Run first: {remedy}\nThen again: tvm-codl doctor"
