"""``tvm-codl bench``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_codl.cli.options import PhoneChoice, effort, named_plan, planning_options, read_network
from tvm_codl.cli.output import print_json, print_table, write_timeline
from tvm_codl.cli.output_file import OUTPUT_FILE
from tvm_codl.cli.report import write_page
from tvm_codl.errors import UsageError

if TYPE_CHECKING:
    from tvm_codl.measure.bench import BenchReport


@click.command()
@planning_options
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="Interleaved rounds; up to three times as many where times vary.",
)
@click.option("--peers", is_flag=True, help="Also onnxruntime or LiteRT, and OpenVINO, on the same cores.")
@click.option("--full", is_flag=True, help="Time every operator again, between the rounds, for ideal and efficiency.")
@click.option("--timeline", type=OUTPUT_FILE, help="Write one run's timeline to this file.")
@click.option("--html", type=OUTPUT_FILE, help="Write a page about this comparison and its plan to this file.")
@click.option(
    "-o", "--output", type=OUTPUT_FILE, help="Write the plan that is made to this file.  [default: in the cache folder]"
)
def command(
    source: str, shape: Any, phone: PhoneChoice, budget: float, given: str, repeat: int, peers: bool,
    full: bool, timeline: Path | None, html: Path | None, output: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare CPU only, GPU only and co-execution of MODEL (an ONNX or TFLite file, or zoo:NAME) in one interleaved run.

    The answers of all three are checked against onnxruntime, or LiteRT for TFLite; exits with 4 if one is wrong.
    """
    if given and output is not None:
        raise UsageError("-o is for the plan that is made, and --plan gives one", next="leave out one of them")
    if peers and phone.named:
        raise UsageError("--peers compares with programs on this machine", "the phone is another one")
    phone.start()
    import msgspec

    with phone.connect_later() as session:
        prepared = read_network(source, shape, None if given else lambda: session().compile_ahead())
        plan = named_plan(given, prepared) if given else None
        plan_path = given or str(output or "")
        report = session().bench(
            prepared, plan=plan, plan_path=plan_path, repeat=repeat, budget_s=budget, peers=peers, full=full, **effort()
        )
    if as_json:
        fields = msgspec.to_builtins(report)
        del fields["timeline"]  # thousands of lines; --timeline writes it
        print_json(fields)
    else:
        _print(report)
    if timeline is not None:
        write_timeline(timeline, report.timeline, report.model)
    if html is not None:
        write_page(source, prepared, phone, report.plan, report, html, budget)


def _print(report: BenchReport) -> None:
    from tvm_codl.report.table import comparison_table

    print_table(comparison_table(report.comparison))
    click.echo(f"{report.ratios}, predicted {report.predicted_ms:.2f} ms")
    if (best := report.comparison.best_peer) is not None:
        click.echo(f"{best}, the best of the others, takes {report.over_best_peer:.2f} of co-execution's time")
    click.echo(
        f"error against the reference: {report.max_abs_err:.2e} absolute, {report.max_rel_err:.2e} relative; "
        f"copied within a run: {report.copied_bytes} bytes ({report.sharing})"
    )
