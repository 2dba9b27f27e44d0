"""Is a plan from a tenth of the measurements as good as one from all?  ``python benchmarks/guided.py MODEL [--json]``.

The exhaustive grid: every operator whole, and split along each of its axes in tenths.  Two plans come of it: ``grid``
chooses among exactly the placements that were measured; ``fitted`` lets the cost model, fitted to the whole grid, choose
among the cuts that any plan chooses from.  The faster one on the phone is the exhaustive reference.  ``guided`` is the plan
of ``tvm-codl measure --budget`` with a tenth of the grid's measurements, from an empty store.  All libraries run in turn, with
each processor alone beside them.

``--records FOLDER`` keeps the grid, the guided store, and the plans; what is there is not measured again, so that
``--rounds 0`` may do everything but the timing at a time when the machine is not quiet.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from tvm_codl.api import Session
from tvm_codl.cli.main import main as run_command
from tvm_codl.cli.options import PhoneChoice, phone_options
from tvm_codl.cli.output import print_json, talk
from tvm_codl.cost.model import CostModel, samples_of
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.frontend.load import load_model
from tvm_codl.measure import interleave
from tvm_codl.measure.budget import Budget
from tvm_codl.measure.guided import grid_placements, grid_probes
from tvm_codl.measure.plan_libraries import libraries_for
from tvm_codl.measure.transfers import measure_transfers
from tvm_codl.plan.candidates import Candidate, candidates, predict_splits
from tvm_codl.plan.files import dump_plan, load_plan
from tvm_codl.plan.plan import Placement, Plan, uniform_plan
from tvm_codl.plan.search import search
from tvm_codl.records.record import Record
from tvm_codl.records.store import RecordStore
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report.statistics import Statistics

RESAMPLES = 2000


def exhaustive(prepared: Prepared, records: list[Record], sharing: TransferCost) -> dict[str, Plan]:
    """The two plans of the whole grid."""
    graph, axes = prepared.graph, prepared.axes
    model = CostModel.fit(samples_of(records))
    fitted = candidates(graph, axes, model)
    places: dict[int, list[Placement]] = {}
    for id, split in grid_placements(graph, axes):
        places.setdefault(id, []).append(split)
    grid: dict[int, tuple[Candidate, ...]] = {
        o.id: fitted[o.id][:2]
        + tuple(predict_splits(graph, axes, model, [(o, split) for split in places.get(o.id, ())]))
        for o in graph.operators
    }
    return {
        "grid": search(graph, grid, sharing, axes, prepared.name).plan,
        "fitted": search(graph, fitted, sharing, axes, prepared.name).plan,
    }


def reference(prepared: Prepared, session: Session, folder: Path) -> dict[str, Plan]:
    """:func:`exhaustive` of the grid in ``folder``, measured as far as it is not there."""
    paths = {name: folder / f"{prepared.name}.{name}.plan.json" for name in ("grid", "fitted")}
    with RecordStore(folder / f"{prepared.name}.grid.sqlite") as store:
        own = replace(session, store=store)
        own.measure_grid(prepared)
        records = own.records()  # all repeats of each, where there are several
    if not all(path.exists() for path in paths.values()):
        sharing = measure_transfers(session.phone, session.tools)
        for name, plan in exhaustive(prepared, records, sharing).items():
            dump_plan(plan, paths[name])
    return {name: load_plan(path) for name, path in paths.items()}


def guided(prepared: Prepared, session: Session, folder: Path, most: int) -> tuple[Plan, int]:
    """The plan from no more than ``most`` measurements, and how many there were."""
    path = folder / f"{prepared.name}.guided.plan.json"
    with RecordStore(folder / f"{prepared.name}.guided.sqlite") as store:
        if not path.exists():
            budget = Budget(measurements=most - len(store))
            dump_plan(replace(session, store=store).measure(prepared, budget).plan, path)
        return load_plan(path), len(store)


def ratio(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """The ratio of medians, and the 5th and 95th percentile of it over resampled rounds (the same rounds for both)."""
    a, b = np.array(ours), np.array(theirs)
    picks = np.random.default_rng(0).integers(0, len(a), (RESAMPLES, len(a)))
    spread = np.median(a[picks], axis=1) / np.median(b[picks], axis=1)
    low, high = np.percentile(spread, [5, 95])
    return {"median": float(np.median(a) / np.median(b)), "p5": float(low), "p95": float(high)}


def compare(prepared: Prepared, session: Session, folder: Path, rounds: int) -> dict[str, Any]:
    probes = grid_probes(prepared.graph, prepared.axes)
    talk(f"{prepared.name}: {len(prepared.graph.operators)} operators, a grid of {len(probes)} measurements")
    plans = reference(prepared, session, folder)
    plans["guided"], taken = guided(prepared, session, folder, len(probes) // 10)
    plans |= {on: uniform_plan(prepared.graph, on, prepared.name) for on in ("cpu", "gpu")}
    paths = libraries_for(prepared, plans, session.tools, talk)
    result: dict[str, Any] = {
        "model": prepared.name,
        "device": session.device,
        "grid_measurements": len(probes),
        "guided_measurements": taken,
        "predicted_ms": {name: plan.predicted_ms for name, plan in plans.items() if plan.predicted_ms},
    }
    if rounds == 0:
        return result
    talk(f"running {rounds} rounds")
    modules = {name: session.open(path) for name, path in paths.items()}
    interleave.start(modules, prepared.model.sample_inputs())
    times = interleave.rounds(modules, rounds)
    best = min(("grid", "fitted"), key=lambda name: float(np.median(times[name])))
    return result | {
        "ms": {name: msgspec.to_builtins(Statistics.of(samples)) for name, samples in times.items()},
        "reference": best,
        "guided_to_reference": ratio(times["guided"], times[best]),
        "same_library": paths["guided"] == paths[best],
    }


@click.command()
@click.argument("source", metavar="MODEL")
@phone_options
@click.option(
    "--folder", "records_folder", type=click.Path(file_okay=False, path_type=Path), help="Keep what is measured here."
)
@click.option("--rounds", type=click.IntRange(0), default=60, show_default=True, help="Interleaved rounds; 0: none.")
@click.option("--json", "as_json", is_flag=True)
def main(source: str, phone: PhoneChoice, records_folder: Path | None, rounds: int, as_json: bool) -> None:
    prepared = prepare(load_model(source))
    with tempfile.TemporaryDirectory() as temporary, phone.connect() as session:
        folder = records_folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = compare(prepared, session, folder, rounds)
    if as_json or not rounds:
        print_json(result)
        return
    for name, one in result["ms"].items():
        click.echo(f"{name:8} {one['median']:8.3f} ms  ({one['p10']:.3f} to {one['p90']:.3f}, {one['n']} samples)")
    found = result["guided_to_reference"]
    click.echo(
        f"guided / {result['reference']}: {found['median']:.3f} ({found['p5']:.3f} to {found['p95']:.3f}), with "
        f"{result['guided_measurements']} measurements against {result['grid_measurements']}"
    )


if __name__ == "__main__":
    run_command(main, "guided.py")
