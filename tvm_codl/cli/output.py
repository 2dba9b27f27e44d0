"""stdout is data, stderr is talk."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

_started = time.monotonic()


def talk(text: str) -> None:
    """Prints a line of progress to stderr, with the seconds since the start."""
    click.echo(f"[{time.monotonic() - _started:6.1f} s] {text}", err=True)


def print_json(value: object) -> None:
    """Any typed value as indented JSON on stdout."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(table: Table) -> None:
    # Off a terminal rich assumes 80 columns and cuts words; a file has no width.
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160).print(table)


def write_timeline(path: Path, events: object, title: str) -> None:
    """A timeline of the runtime as a file that Perfetto opens."""
    from tvm_codl.report.timeline import read_events
    from tvm_codl.report.trace import write_trace

    write_trace(path, read_events(events), title)  # type: ignore[arg-type]
    talk(f"timeline: {path}  (open it at https://ui.perfetto.dev)")
