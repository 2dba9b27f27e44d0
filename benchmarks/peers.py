"""Networks by us and by what their users have already: ``python benchmarks/peers.py [MODEL…] [--apart] [--out FOLDER] [--json]``.

``tvm-codl bench --peers`` for several ONNX and TFLite files or ``zoo:NAME`` (default: the zoo) in one run, so
that these can be compared with each other as well, such as a network of 8-bit integers with that of float32.  With ``--apart``
one network runs after the other, which takes less memory and less time; ``--out`` does so and keeps a file a network: a run
that was interrupted goes on with those that are not there.  Ours is the least of the CPU's, the GPU's and the
plan's time: a plan is taken only where it is faster than each processor alone.  The phone must be a local one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

import click
import msgspec
import numpy as np

from tvm_codl.api import Session
from tvm_codl.cli.main import main as run_command
from tvm_codl.cli.options import PhoneChoice, json_option, phone_options, records_option, tuning_records_option
from tvm_codl.cli.output import print_json, talk
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.zoo import ENTRIES
from tvm_codl.measure.answers import check_answer
from tvm_codl.measure.interleave import Race, Turn, calm_down, library_turn
from tvm_codl.measure.peers import open_peers
from tvm_codl.measure.plan_libraries import open_runnable
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report.statistics import Statistics
from tvm_codl.runtime.pocl import replace_file

#: Rounds between two lines of progress.
TOLD = 10
#: With ``--apart`` the rounds of one network take this long, if so few are enough.
SECONDS, FEWEST = 20.0, 5
OURS = ("cpu", "gpu", "plan")


class Row(msgspec.Struct, frozen=True):
    """``ms`` by ``cpu``, ``gpu``, ``plan`` and other programs' names; ``ours_over_peer`` < 1: ours is faster than the best
    of the others.

    ``disturbed``: other work had the cores in too many rounds.
    """

    model: str
    ms: dict[str, Statistics]
    best_peer: str
    ours_over_peer: float
    speedup: float
    max_rel_err: float
    disturbed: bool


def ours(prepared: Prepared, session: Session, budget_s: float) -> tuple[dict[str, Turn], float]:
    """The turns of each processor alone and of the plan, and the largest relative error of their answers."""
    plans = {on: uniform_plan(prepared.graph, on, prepared.name) for on in ("cpu", "gpu")}
    _, modules = open_runnable(prepared, {**plans, "plan": session.plan(prepared, budget_s)}, session)
    errors = [
        check_answer(n, m, prepared.samples, prepared.answers, quanta=prepared.quanta)[1] for n, m in modules.items()
    ]
    return {name: library_turn(module) for name, module in modules.items()}, max(errors)


def compete(models: Sequence[str], session: Session, budget_s: float, rounds: int, seconds: float) -> list[Row]:
    """A row for each of ``models``, whose rounds alternate; of all together at most ``rounds``, and about so many seconds."""
    races: dict[str, Race] = {}
    samples: dict[str, dict[str, list[float]]] = {}
    errors, peers = {}, {}
    for name in models:
        prepared = prepare(load_model(name))
        peers[name] = open_peers(prepared.model, prepared.samples, talk)
        found, errors[name] = ours(prepared, session, budget_s)
        races[name] = Race({**found, **peers[name]}, usual=session.usual_work)
        samples[name] = {variant: [] for variant in races[name].turns}
    calm_down()
    until = time.monotonic() + seconds
    for done in range(1, rounds + 1):
        # Rounds of one network alone are repeated where they were disturbed: one of all is hardly ever undisturbed.
        for name, race in races.items():
            for variant, times in race.run(1).items():
                samples[name][variant] += times
        if done % TOLD == 0:
            talk(f"{done} of {rounds} rounds")
        if done >= FEWEST and time.monotonic() > until:
            break
    rows = []
    for name, race in races.items():
        if race.words:
            talk(f"{name}: {race.words}")
        ms = {variant: Statistics.of(times) for variant, times in samples[name].items()}
        alone = min(ms[on].median for on in ("cpu", "gpu") if on in ms)
        least = min(ms[variant].median for variant in OURS if variant in ms)
        best = min(peers[name], key=lambda peer: ms[peer].median)
        ratio = least / ms[best].median
        rows.append(Row(name, ms, best, ratio, alone / ms["plan"].median, errors[name], race.disturbed))
    return rows


def compete_apart(
    models: Sequence[str], session: Session, budget_s: float, rounds: int, out: Path | None
) -> Iterator[Row]:
    """The rows of ``models``, one after the other; those in the folder ``out`` are taken from there."""
    for name in models:
        kept = out / f"{name.removeprefix('zoo:').replace('/', '_')}.peers.json" if out else None
        if kept is not None and kept.exists():
            yield msgspec.json.decode(kept.read_bytes(), type=Row)
            continue
        (row,) = compete((name,), session, budget_s, rounds, SECONDS)
        talk(f"{row.model}: {row.ours_over_peer:.2f} of {row.best_peer}'s time")
        if kept is not None:
            replace_file(kept, msgspec.json.encode(row))
        yield row


@click.command()
@click.argument("models", nargs=-1)
@phone_options
@records_option
@tuning_records_option
@click.option("--budget", "budget_s", default=60.0, metavar="SECONDS", help="To measure each network for.")
@click.option("--rounds", type=click.IntRange(1), default=30, show_default=True)
@click.option("--apart", is_flag=True, help="One network after the other.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Keep each network's row here.")
@json_option
def main(
    models: tuple[str, ...],
    phone: PhoneChoice,
    budget_s: float,
    rounds: int,
    apart: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Prints a table with a line for each of MODELS."""
    names = models or tuple(f"zoo:{entry.name}" for entry in ENTRIES if entry.name != "small")
    with phone.connect() as session:
        if apart or out:
            rows = list(compete_apart(names, session, budget_s, rounds, out))
        else:
            rows = compete(names, session, budget_s, rounds, inf)
        device = session.device
    mean = float(np.exp(np.mean([np.log(row.ours_over_peer) for row in rows])))
    if as_json:
        return print_json({"device": device, "rows": msgspec.to_builtins(rows), "geometric_mean": mean})
    columns = list(dict.fromkeys(variant for row in rows for variant in row.ms))
    click.echo(f"| ms | {' | '.join(columns)} | ours over the best other | error |")
    click.echo("|---" * (len(columns) + 3) + "|")
    for row in rows:
        cells = [_cell(row.ms[each]) if each in row.ms else "" for each in columns]
        ratio = f"{row.ours_over_peer:.2f}{', disturbed' if row.disturbed else ''}"
        click.echo(f"| {row.model.removeprefix('zoo:')} | {' | '.join(cells)} | {ratio} | {row.max_rel_err:.1e} |")
    click.echo(f"\nOurs over the best other: {mean:.3f} (geometric mean)")
    return None


def _cell(ms: Statistics) -> str:
    return f"{ms.median:.3g} ({ms.p10:.3g} to {ms.p90:.3g})"


if __name__ == "__main__":
    run_command(main, "peers.py")
