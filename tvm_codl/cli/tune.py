"""``tvm-codl tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import (
    FILE,
    PhoneChoice,
    json_option,
    model_options,
    named_plan,
    phone_options,
    read_network,
    records_option,
)
from tvm_codl.cli.output import print_json, print_table, talk
from tvm_codl.cli.output_file import OUTPUT_FILE
from tvm_codl.errors import DeviceError, UsageError


@click.command()
@model_options
@phone_options
@click.option("--processor", type=click.Choice(["cpu", "gpu", "both"]), default="both", show_default=True)
@click.option("--trials", type=click.IntRange(1), default=64, show_default=True, help="Configurations of each kernel.")
@click.option(
    "--early-stopping", type=click.IntRange(0), default=0, metavar="N",
    help="Leave a kernel after N trials without a better one.  [default: never]",
)  # fmt: skip
@click.option(
    "--tuner", type=click.Choice(["xgb", "random", "gridsearch", "climb"]), default="xgb", show_default=True,
    help="AutoTVM's tuners; climb tries one knob after another.",
)  # fmt: skip
@click.option("--minutes", type=click.FloatRange(0), default=0.0, help="Stop after this long.  [default: never]")
@click.option("--plan", "given", default="", metavar="PLAN", help="Tune the pieces that this plan uses, longest first.")
@records_option
@click.option("--tuning-records", type=FILE, help="AutoTVM records to start from, beside the shipped ones.")
@click.option("--retry-failed", is_flag=True, help="Try again what failed before.")
@click.option("-o", "--output", type=OUTPUT_FILE, help="AutoTVM records of the best.  [default: MODEL's name, .log]")
@click.option("--html", type=OUTPUT_FILE, help="Write a page about the tuned kernels to this file.")
@json_option
def command(
    source: str, shape: Any, phone: PhoneChoice, processor: str, trials: int, early_stopping: int, tuner: str, minutes: float,
    given: str, retry_failed: bool, output: Path | None, html: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Tune the kernels of MODEL (an ONNX or TFLite file, or zoo:NAME) on a phone, with AutoTVM.

    The best configuration of each kernel goes to FILE.log, for --tuning-records of the other commands, and every trial to
    FILE.trials.log and the record store.  After an interruption the same command goes on from there.
    """
    if phone.phones > 1:
        raise UsageError("kernels are tuned on one phone", "--rpc-phones is for measuring", "leave out --rpc-phones")
    prepared = read_network(source, shape)
    from tvm_codl.report.kernels import tuned_page, tuned_table
    from tvm_codl.report.tables_page import render_tables

    plan = named_plan(given, prepared) if given else None
    output = output or OUTPUT_FILE.convert(f"{prepared.name}.log", None, click.get_current_context())
    with phone.connect() as session:
        device = session.device
        report = session.tune(
            prepared, output, plan=plan,
            processors=("cpu", "gpu") if processor == "both" else (processor,),
            trials=trials, early_stopping=early_stopping, tuner=tuner, minutes=minutes, retry_failed=retry_failed,
        )  # fmt: skip
    if report.failed and not report.tuned and not report.finished:
        raise DeviceError(
            "no kernel runs", f"{report.failed} were tried; {report.trials} has their errors", "tvm-codl doctor"
        )
    if html is not None:
        page = tuned_page(prepared.name, device, report.records, report.tuned)
        html.write_text(render_tables(page), encoding="utf-8")
        talk(f"page: {html}")
    if as_json:
        print_json(report)
        return
    print_table(tuned_table(report.tuned))
    click.echo(f"{report.records}: give it to the other commands with --tuning-records {report.records}")
