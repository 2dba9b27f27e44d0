"""What other work on the phone's cores does to a speedup: ``python benchmarks/disturbed.py [MODEL] [--json]``.

A process takes one core of a local phone in spells, of 0.1, 1 and 5 seconds, a quarter and half of the time.  In each of
many runs each processor alone and a plan are timed in turn as ``bench`` does it, and the speedup is compared with that of
calm runs, of which there is one before every few of the others.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event

import click
import msgspec
import numpy as np

from tvm_codl.cli.main import main as run_command
from tvm_codl.cli.options import PhoneChoice, json_option, measuring_options, phone_options
from tvm_codl.cli.output import print_json, talk
from tvm_codl.frontend.load import load_model
from tvm_codl.measure.interleave import MORE, UsualWork, race, start
from tvm_codl.measure.plan_libraries import open_runnable
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.relay.pipeline import prepare
from tvm_codl.runtime.comodule import CoModule

SPELLS_S = (0.1, 1.0, 5.0)
SHARES = (0.25, 0.5)
#: A speedup that is off by more is wrong.
WRONG = 0.05
#: Disturbed runs between two calm ones.
BETWEEN = 4


class Run(msgspec.Struct, frozen=True):
    """``spell_s`` 0: nobody took a core.  ``off`` is the speedup over that of calm runs, less 1."""

    core: int
    spell_s: float
    share: float
    speedup: float
    disturbed: bool
    discarded: int
    seconds: float
    off: float = 0.0

    @property
    def wrong(self) -> bool:
        return abs(self.off) > WRONG


def take(core: int, spell_s: float, share: float, phase: float, begun: Event) -> None:
    """Computes on one core for ``spell_s`` seconds, sleeps, and computes again, until it is killed; begins at ``phase``,
    from 0 to 1, of a period."""
    os.sched_setaffinity(0, {core})
    period = spell_s / share
    at = phase * period
    begun.set()
    if at >= spell_s:
        time.sleep(period - at)
        at = 0.0
    spell_s, whole = spell_s - at, spell_s
    while True:
        until = time.monotonic() + spell_s
        while time.monotonic() < until:
            pass
        time.sleep(period - whole)
        spell_s = whole


@contextlib.contextmanager
def disturbance(core: int, spell_s: float, share: float, phase: float) -> Iterator[None]:
    if not spell_s:
        yield
        return
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    process = context.Process(target=take, args=(core, spell_s, share, phase, begun), daemon=True)
    process.start()
    try:
        begun.wait()
        yield
    finally:
        process.kill()
        process.join()


def run(
    modules: dict[str, CoModule], usual: UsualWork, rounds: int, core: int, spell_s: float, share: float, phase: float
) -> Run:
    with disturbance(core, spell_s, share, phase):
        started = time.monotonic()
        racing = race(modules, usual=usual)
        ms = {name: float(np.median(times)) for name, times in racing.run(rounds, most=MORE * rounds).items()}
    speedup = min(ms["cpu"], ms["gpu"]) / ms["plan"]
    return Run(core, spell_s, share, speedup, racing.disturbed, racing.discarded, time.monotonic() - started)


@click.command()
@click.argument("source", metavar="[MODEL]", default="zoo:squeezenet")
@phone_options
@measuring_options
@click.option("--runs", type=click.IntRange(1), default=40, show_default=True, help="Runs beside other work.")
@click.option("--rounds", type=click.IntRange(1), default=30, show_default=True)
@click.option("--seed", default=0, show_default=True)
@json_option
def main(
    source: str, phone: PhoneChoice, budget: float, runs: int, rounds: int, seed: int, as_json: bool
) -> None:  # fmt: skip
    """Times MODEL while a process takes a core now and then."""
    prepared = prepare(load_model(source))
    chance = random.Random(seed)
    cores = sorted(os.sched_getaffinity(0))
    kinds = [(spell, share) for spell in SPELLS_S for share in SHARES]
    found: list[Run] = []
    with phone.connect() as session:
        plans = {on: uniform_plan(prepared.graph, on, prepared.name) for on in ("cpu", "gpu")}
        plans["plan"] = session.plan(prepared, budget)
        _, modules = open_runnable(prepared, plans, session)
        start(modules, prepared.model.sample_inputs())
        for number in range(runs):
            if number % BETWEEN == 0:
                found.append(run(modules, session.usual_work, rounds, -1, 0.0, 0.0, 0.0))
                talk(f"calm: {found[-1].speedup:.3f}")
            spell, share = kinds[number % len(kinds)]
            found.append(run(modules, session.usual_work, rounds, chance.choice(cores), spell, share, chance.random()))
            last = found[-1]
            talk(f"core {last.core}, {spell:g} s, {share:g} of the time: {last.speedup:.3f}, discarded {last.discarded}, {last.seconds:.1f} s{', disturbed' * last.disturbed}")  # fmt: skip
    calm = [each for each in found if not each.spell_s]
    usual = float(np.median([each.speedup for each in calm]))
    beside = [msgspec.structs.replace(each, off=each.speedup / usual - 1) for each in found if each.spell_s]
    summary = {
        "model": source,
        "calm_speedup": usual,
        "calm_spread": [min(each.speedup for each in calm), max(each.speedup for each in calm)],
        "calm_disturbed": sum(each.disturbed for each in calm),
        "runs": len(beside),
        "wrong_in_silence": sum(each.wrong and not each.disturbed for each in beside),
        "right_in_silence": sum(not each.wrong and not each.disturbed for each in beside),
        "disturbed": sum(each.disturbed for each in beside),
    }
    if as_json:
        return print_json({**summary, "beside": beside, "calm": calm})
    for name, value in summary.items():
        click.echo(f"{name}: {value}")
    return None


if __name__ == "__main__":
    run_command(main, "disturbed.py")
