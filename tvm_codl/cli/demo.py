"""``tvm-codl demo``."""

from __future__ import annotations

from pathlib import Path

import click

from tvm_codl.cli.options import PhoneChoice, phone_options
from tvm_codl.cli.output import print_table, write_timeline
from tvm_codl.measure.budget import USUAL_S

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@phone_options
@click.option(
    "--budget", type=float, default=USUAL_S, show_default=True, help="Seconds to measure pieces of each model for."
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Interleaved rounds; up to three times as many where times vary.",
)
@click.option(
    "-o", "--output", type=FOLDER, default=Path("demo"), show_default=True, help="Folder for plans and pictures."
)
def command(phone: PhoneChoice, budget: float, repeat: int, output: Path) -> None:
    """Run ResNet-18, then detect text in a picture with PP-OCRv4, on both processors of a phone at once."""
    phone.start()
    from tvm_codl.measure.demo import classification, text_detection
    from tvm_codl.report.table import comparison_table

    output.mkdir(parents=True, exist_ok=True)
    with phone.connect() as session:
        profile = session.profile
        click.echo(f"phone: {profile.name}; CPU: cores {list(profile.cpu_cores)}; GPU: {profile.gpu_name}")
        for show in (classification, text_detection):
            shown = show(session, output, budget, repeat)
            report = shown.report
            click.echo("")
            print_table(comparison_table(report.comparison))
            for line in shown.lines:
                click.echo(line)
            click.echo(
                f"{report.ratios}; error against onnxruntime {report.max_rel_err:.1e} relative; "
                f"copied within a run {report.copied_bytes} bytes"
            )
            click.echo(f"plan: {shown.plan}   (why: tvm-codl plan {shown.source} --plan {shown.plan} --explain)")
            path = output / f"{report.model}.pftrace"
            write_timeline(path, report.timeline, report.model)
            click.echo(f"timeline: {path}")
