"""``tvm-codl rank``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import (
    PhoneChoice,
    complete_file,
    json_option,
    no_check_option,
    phone_options,
    read_network,
    records_option,
    shape_option,
    tuning_records_option,
)
from tvm_codl.cli.output import print_json, print_table, talk
from tvm_codl.cli.output_file import OUTPUT_FILE
from tvm_codl.measure.budget import USUAL_S


@click.command()
@click.argument("sources", metavar="MODEL...", nargs=-1, required=True, shell_complete=complete_file)
@shape_option
@no_check_option
@phone_options
@click.option("--top", type=click.IntRange(0), default=3, show_default=True, help="Measure the best TOP on the phone.")
@click.option(
    "--budget",
    type=float,
    default=USUAL_S,
    show_default=True,
    help="Seconds to measure pieces for, for each of the best.",
)
@click.option("--repeat", type=click.IntRange(1), default=20, show_default=True, help="Interleaved rounds.")
@records_option
@tuning_records_option
@click.option("--html", type=OUTPUT_FILE, help="Write a page about the ranking to this file.")
@json_option
def command(
    sources: tuple[str, ...], shape: Any, phone: PhoneChoice, top: int, budget: float, repeat: int, html: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Rank models (ONNX or TFLite files, or zoo:NAME) by latency: predict all from the records, then measure the best few.

    Predicting measures nothing, unless the records know next to nothing of this phone: then some whole operators are
    measured first.  --top 0 predicts only.
    """
    from tvm_codl.errors import UsageError

    twice = sorted({source for source in sources if sources.count(source) > 1})
    if twice:
        raise UsageError(f"{twice[0]} is named twice")
    from tvm_codl.report.ranking import agreement_words, ranking_page, ranking_table
    from tvm_codl.report.tables_page import render_tables

    networks = {}
    for source in sources:
        networks[source] = read_network(source, shape)
        talk(f"{source}: {len(networks[source].graph.operators)} operators")
    with phone.connect() as session:
        ranking = session.rank(networks, top=top, budget_s=budget, repeat=repeat)
    if html is not None:
        html.write_text(render_tables(ranking_page(ranking)), encoding="utf-8")
        talk(f"page: {html}")
    if as_json:
        print_json(ranking)
        return
    print_table(ranking_table(ranking))
    if ranking.agreement is not None:
        click.echo(agreement_words(ranking.agreement))
