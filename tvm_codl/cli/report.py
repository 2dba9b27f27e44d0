"""``tvm-codl report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_codl.cli.options import (
    FILE,
    PhoneChoice,
    given_options,
    measuring_options,
    model_options,
    named_plan,
    options,
    phone_options,
    plan_option,
    read_operators,
)
from tvm_codl.cli.output import talk
from tvm_codl.cli.output_file import OUTPUT_FILE
from tvm_codl.errors import UsageError, UserError

if TYPE_CHECKING:
    from tvm_codl.measure.bench import BenchReport
    from tvm_codl.measure.network_page import Checked
    from tvm_codl.relay.prepared import Prepared


@click.command()
@options(model_options, phone_options, measuring_options, plan_option)
@click.argument("other", metavar="[PAGE]", required=False, type=FILE)
@click.option("--bench", "measured", type=FILE, help="What bench --json printed: its times, and its plan.")
@click.option("--check", "checked", type=FILE, help="What check --plan --json printed: each operator's error.")
@click.option(
    "-o", "--output", type=OUTPUT_FILE, help="The page to write.  [default: report.html; of two pages, comparison.html]"
)
def command(
    source: str, shape: Any, phone: PhoneChoice, budget: float, given: str, measured: Path | None, checked: Path | None,
    other: Path | None, output: Path | None,
) -> None:  # fmt: skip
    """Write a page about MODEL (an ONNX or TFLite file, or zoo:NAME) and a plan of it: where each operator runs and why,
    what it would take elsewhere, a run of both processors, and where the time goes.

    MODEL may also be a plan's file, or what bench --json printed, of a network of the zoo.

    With two pages of one network, A.html and B.html, written by this command or by bench --html: write a page that compares
    them.

    The page is one file that needs no network.  Without --plan the plan is searched for by the costs on record; the phone is
    asked only where nothing is on record.
    """
    default = "report.html" if other is None else "comparison.html"
    output = output or OUTPUT_FILE.convert(default, None, click.get_current_context())
    if other is not None:
        return _compare(Path(source), other, output)
    if Path(source).suffix == ".html":
        raise UsageError(
            f"{source} is a page, and no other one to compare it with is named", next="tvm-codl report A.html B.html"
        )
    if Path(source).suffix == ".json":
        if given or measured is not None:
            raise UsageError(
                f"{source} says itself which plan it is about", next="name MODEL to give --plan or --bench"
            )
        source, given, measured = _of_file(source)
    bench = None if measured is None else read_bench(measured)
    prepared = read_operators(source, shape)
    if bench is not None and bench.model != prepared.name:
        raise UserError(f"{measured} is of another network", f"it has {bench.model}, MODEL is {prepared.name}")
    write_page(
        source, prepared, phone, given or (bench.plan if bench is not None else ""), bench, output, budget, checked
    )


def write_page(
    source: str,
    prepared: Prepared,
    phone: PhoneChoice,
    path: str,
    bench: BenchReport | None,
    output: Path,
    budget: float,
    checked: Path | None = None,
) -> None:
    """The page of the plan in the file ``path``, by default one that is searched for."""
    from tvm_codl.measure.network_page import network_page
    from tvm_codl.measure.offline_costs import find_costs
    from tvm_codl.report.page import render

    plan = named_plan(path, prepared) if path else None
    device = bench.device if bench is not None else plan.device if plan is not None else ""
    costs = find_costs(
        prepared, phone.connect, phone.records, phone.tuning_records, device=device, named=phone.named, budget_s=budget,
        log=talk,
    )  # fmt: skip
    errors = () if checked is None else read_check(checked)
    page = network_page(
        source,
        plan or costs.problem.search(),
        path,
        costs.problem,
        costs.model,
        bench,
        costs.runs,
        costs.rounds,
        errors,
    )
    output.write_text(render(page), encoding="utf-8")
    talk(f"report: {output}")


def _compare(a: Path, b: Path, output: Path) -> None:
    """A page about two pages, by what their files carry."""
    from tvm_codl.report.comparison import compare, read_data
    from tvm_codl.report.tables_page import render_tables

    extra = [option for name, option in given_options().items() if name not in ("source", "other", "output")]
    if extra:
        raise UsageError(f"{extra[0]} is for a page of MODEL", f"{a} and {b} are compared as they are")
    output.write_text(render_tables(compare(read_data(a), read_data(b), (str(a), str(b)))), encoding="utf-8")
    talk(f"report: {output}")


def _of_file(path: str) -> tuple[str, str, Path | None]:
    """MODEL, --plan and --bench that a plan's file, or what ``bench --json`` printed, stands for."""
    import msgspec

    from tvm_codl.frontend.zoo import ENTRIES

    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is no plan, and not what bench --json prints", str(error)) from error
    name = found.get("model")
    if name not in {entry.name for entry in ENTRIES}:
        option = "--bench" if "coexec_ms" in found else "--plan"
        raise UserError(
            f"{path} does not say where its network is",
            f"it calls it {name!r}, and the zoo has none of that name",
            f"tvm-codl report MODEL {option} {path}",
        )
    talk(f"{path} is about zoo:{name}")
    return (f"zoo:{name}", "", Path(path)) if "coexec_ms" in found else (f"zoo:{name}", path, None)


def read_bench(path: Path) -> BenchReport:
    """What ``bench --json`` printed.  Raises :class:`UserError` for anything else."""
    import msgspec

    from tvm_codl.measure.bench import BenchReport

    try:
        return msgspec.json.decode(path.read_bytes(), type=BenchReport)
    except msgspec.DecodeError as error:
        remedy = f"tvm-codl bench MODEL --json > {path}"
        raise UserError(f"{path} is not what bench --json prints", str(error), remedy) from error


def read_check(path: Path) -> tuple[Checked, ...]:
    """The operators' errors that ``check --plan --json`` printed.  Raises :class:`UserError` for anything else."""
    import msgspec

    from tvm_codl.measure.network_page import CheckedPlan

    try:
        return msgspec.json.decode(path.read_bytes(), type=CheckedPlan).operators
    except msgspec.DecodeError as error:
        remedy = f"tvm-codl check MODEL --plan PLAN --json > {path}"
        raise UserError(f"{path} is not what check --plan --json prints", str(error), remedy) from error
