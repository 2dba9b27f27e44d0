"""Networks by us and by what their users have already: ``python benchmarks/peers.py MODEL… [--json]``.

``tvm-codl bench --peers`` for several ONNX and TFLite files or ``zoo:NAME`` in one run, so that these can be compared with each
other as well, such as a network of 8-bit integers with that of float32.  The phone must be a local one.
"""

from __future__ import annotations

import click
import msgspec

from tvm_codl.api import Session
from tvm_codl.cli.options import PhoneChoice, json_option, phone_options, records_option, tuning_records_option
from tvm_codl.cli.output import print_json, talk
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.measure.answers import check_answer
from tvm_codl.measure.interleave import Race, Turn, calm_down, library_turn
from tvm_codl.measure.peers import open_peers
from tvm_codl.measure.plan_libraries import open_runnable
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report.statistics import Statistics

#: Rounds between two lines of progress.
TOLD = 10


class Row(msgspec.Struct, frozen=True):
    """``ms`` by ``cpu``, ``gpu``, ``plan`` and other programs' names; ``over_best_peer`` > 1: ours is faster.

    ``disturbed``: other work had the cores in too many rounds.
    """

    model: str
    ms: dict[str, Statistics]
    best_peer: str
    over_best_peer: float
    speedup: float
    max_rel_err: float
    disturbed: bool


def ours(prepared: Prepared, session: Session, budget_s: float) -> tuple[dict[str, Turn], float]:
    """The turns of each processor alone and of the plan, and the largest relative error of their answers."""
    plans = {on: uniform_plan(prepared.graph, on, prepared.name) for on in ("cpu", "gpu")}
    _, modules = open_runnable(prepared, {**plans, "plan": session.plan(prepared, budget_s)}, session)
    inputs = prepared.model.sample_inputs()
    wanted = reference_outputs(prepared.model, inputs)
    errors = [check_answer(n, m, inputs, wanted, quanta=prepared.model.quanta)[1] for n, m in modules.items()]
    return {name: library_turn(module) for name, module in modules.items()}, max(errors)


@click.command()
@click.argument("models", nargs=-1, required=True)
@phone_options
@records_option
@tuning_records_option
@click.option("--budget", "budget_s", default=60.0, metavar="SECONDS", help="To measure each network for.")
@click.option("--rounds", type=click.IntRange(1), default=30, show_default=True)
@json_option
def main(models: tuple[str, ...], phone: PhoneChoice, budget_s: float, rounds: int, as_json: bool) -> None:
    """Prints one line for each of MODELS."""
    races: dict[str, Race] = {}
    samples: dict[str, dict[str, list[float]]] = {}
    errors, peers = {}, {}
    with phone.connect() as session:
        for name in models:
            prepared = prepare(load_model(name))
            peers[name] = open_peers(prepared.model, prepared.model.sample_inputs(), talk)
            found, errors[name] = ours(prepared, session, budget_s)
            races[name] = Race({**found, **peers[name]}, usual=session.usual_work)
            samples[name] = {variant: [] for variant in races[name].turns}
        calm_down()
        for done in range(1, rounds + 1):
            # Rounds of one network alone are repeated where they were disturbed: one of all is hardly ever undisturbed.
            for name, race in races.items():
                for variant, times in race.run(1).items():
                    samples[name][variant] += times
            if done % TOLD == 0:
                talk(f"{done} of {rounds} rounds")
        for name, race in races.items():
            if race.words:
                talk(f"{name}: {race.words}")
        device = session.device
    rows = []
    for name, race in races.items():
        ms = {variant: Statistics.of(times) for variant, times in samples[name].items()}
        alone = min(ms[on].median for on in ("cpu", "gpu") if on in ms)
        plan = ms["plan"].median
        best = min(peers[name], key=lambda peer: ms[peer].median)
        rows.append(Row(name, ms, best, ms[best].median / plan, alone / plan, errors[name], race.disturbed))
    if as_json:
        return print_json({"device": device, "rows": msgspec.to_builtins(rows)})
    for row in rows:
        times = "  ".join(
            f"{variant} {each.median:.3f} ms ({each.p10:.3f} to {each.p90:.3f})" for variant, each in row.ms.items()
        )
        click.echo(f"{row.model}: {times}; {row.best_peer} takes {row.over_best_peer:.2f} of the plan's time")
    return None


if __name__ == "__main__":
    main()
