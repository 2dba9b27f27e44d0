"""``tvm-codl bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import json_option, load, measuring_options, model_options, named_plan, phone_options
from tvm_codl.cli.output import print_json, print_table, talk, write_timeline


@click.command()
@model_options
@phone_options
@measuring_options
@click.option(
    "--plan", "given", default="", metavar="PLAN", help="A plan file, cpu-only or gpu-only.  [default: make one]"
)
@click.option("--repeat", type=click.IntRange(1), default=30, show_default=True, help="Interleaved rounds.")
@click.option(
    "--timeline", type=click.Path(dir_okay=False, path_type=Path), help="Write one run's timeline to this file."
)
@json_option
def command(
    source: str, shape: Any, reach: Any, budget: float, records: Path | None, tuning_records: Path | None,
    given: str, repeat: int, timeline: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare CPU only, GPU only and co-execution of MODEL (an ONNX file or zoo:NAME) in one interleaved run.

    The answers of all three are checked against onnxruntime; exits with 4 if one is wrong.
    """
    model = load(source, shape)
    import msgspec

    from tvm_codl.bench import bench
    from tvm_codl.report.table import comparison_table
    from tvm_codl.workflow import prepare

    prepared = prepare(model)
    plan = named_plan(given, prepared) if given else None
    with reach() as phone:
        report = bench(
            prepared, phone, plan=plan, plan_path=given, repeat=repeat, budget_s=budget, log=talk, records=records,
            tuning_records=tuning_records,
        )  # fmt: skip
    if timeline is not None:
        write_timeline(timeline, report.timeline, report.model)
    if as_json:
        fields = msgspec.to_builtins(report)
        del fields["timeline"]  # thousands of lines; --timeline writes it
        print_json(fields)
        return
    print_table(comparison_table(report.comparison))
    click.echo(
        f"speedup {report.speedup:.2f}, efficiency {report.efficiency:.2f}, overlap {report.overlap:.2f}, "
        f"predicted {report.predicted_ms:.2f} ms"
    )
    click.echo(
        f"error against onnxruntime: {report.max_abs_err:.2e} absolute, {report.max_rel_err:.2e} relative; "
        f"copied within a run: {report.copied_bytes} bytes ({report.sharing})"
    )
