"""What each setting is worth: ``python benchmarks/settings.py MODEL [--plan FILE] [--json]``.

One library is run on the phone with one setting after the other, round after round, and each setting's time is taken as
a share of the default's in the same round: the median, its standard error, and the middle eight tenths.  A setting that
needs a library of its own (float16, images) is measured as well where the device can do it.  Without a plan, every operator
that can be cut is cut in halves, so that both processors work and wait for each other all the time.
"""

from __future__ import annotations

import json
from typing import Any

import click
import numpy as np

from tvm_codl.api import connect
from tvm_codl.cli.main import main as run_command
from tvm_codl.cli.options import named_plan
from tvm_codl.frontend.load import load_model
from tvm_codl.measure.choices import ratio, varied
from tvm_codl.measure.settings_search import SettingLibraries
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator
from tvm_codl.records.settings import DEFAULT, Settings
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared


def halves(prepared: Prepared) -> Plan:
    """Every operator cut in the middle of an axis, where it has one, and the others on the GPU."""
    lines = []
    for operator in prepared.graph.operators:
        axes = prepared.axes[operator.id]
        name = next((n for n in ("height", "channels", "rows") if n in axes and axes[n].extent > 1), "")
        on = Placement("split", name, axes[name].extent // 2) if name else Placement("gpu")
        lines.append(PlannedOperator(operator.id, operator.name, on))
    return Plan(prepared.name, "reference", tuple(lines))


def measured(bench: SettingLibraries, settings: list[Settings], rounds: int) -> list[dict[str, Any]]:
    """One line for each setting, and one for the default under another name."""
    times = bench.run([DEFAULT, *settings, DEFAULT_AGAIN], rounds)
    default = np.asarray(times[DEFAULT])
    lines = []
    for each in (*settings, DEFAULT_AGAIN):
        found = ratio(each, times[each], times[DEFAULT])
        low, high = np.percentile(np.asarray(times[each]) / default, [10, 90])
        lines.append(
            {
                "settings": "default again" if each is DEFAULT_AGAIN else each.words(),
                "median_ms": float(np.median(times[each])),
                "ratio": found.median,
                "error": found.error,
                "p10": float(low),
                "p90": float(high),
                "n": found.n,
                "clear": found.clear,
            }
        )
    return lines


#: A period that no list of commands is long enough for is the default under another name: what it shows is the doubt.
DEFAULT_AGAIN = Settings(flush_every=1 << 20)


@click.command()
@click.argument("source", metavar="MODEL")
@click.option("--plan", "given", default="", metavar="PLAN", help="A plan file, or cpu-only or gpu-only.")
@click.option("--rounds", default=16, show_default=True, help="Rounds, of two samples for each setting.")
@click.option("--json", "as_json", is_flag=True)
def main(source: str, given: str, rounds: int, as_json: bool) -> None:
    prepared = prepare(load_model(source))
    plan = named_plan(given, prepared) if given else halves(prepared)
    with connect(log=lambda text: click.echo(text, err=True)) as session:
        bench = SettingLibraries(prepared, plan, session)
        offers = bench.offers
        settings = [made for f, values in offers.items() for v in values if (made := varied(DEFAULT, f, v)) is not None]
        lines = measured(bench, settings, rounds)
        device = session.device
    if as_json:
        click.echo(json.dumps({"model": prepared.name, "device": device, "rounds": rounds, "settings": lines}))
        return
    click.echo(f"{prepared.name} on {device}: share of the default's time, in the same round")
    for line in lines:
        click.echo(
            f"{line['settings']:24} {line['median_ms']:9.3f} ms  {line['ratio']:.4f} ± {line['error']:.4f}"
            f"  ({line['p10']:.3f} to {line['p90']:.3f}, n = {line['n']})"
        )


if __name__ == "__main__":
    run_command(main, "settings.py")
