"""What commands print: data to stdout, progress to stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console, RenderableType

_started = time.monotonic()


def elapsed_s() -> float:
    """Seconds since the start."""
    return time.monotonic() - _started


def talk(text: str) -> None:
    """Prints a line of progress to stderr, with the seconds since the start."""
    click.echo(f"[{elapsed_s():6.1f} s] {text}", err=True)


def print_json(value: object) -> None:
    """Any typed value as indented JSON on stdout."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_checks(checks: Iterable[Any], as_json: bool) -> list[Any]:
    """Prints each check as soon as it is done, with what to do where it failed, or all of them as JSON; returns them."""
    done = []
    for check in checks:
        done.append(check)
        if not as_json:
            failed = "FAIL" if getattr(check, "needed", True) else "note"
            click.echo(f"{'ok  ' if check.ok else failed}  {check.name}: {check.found}")
            if not check.ok and check.remedy:
                click.echo(f"      next: {check.remedy}")
    if as_json:
        print_json(done)
    return done


def print_table(table: RenderableType) -> None:
    # Off a terminal rich assumes 80 columns and cuts words; a file has no width.
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160).print(table)


def write_timeline(path: Path, events: object, title: str) -> None:
    """A timeline of the runtime as a file that Perfetto opens."""
    from tvm_codl.report.timeline import read_events
    from tvm_codl.report.trace import write_trace

    write_trace(path, read_events(events), title)  # type: ignore[arg-type]
    talk(f"timeline: {path}  (open it at https://ui.perfetto.dev)")
