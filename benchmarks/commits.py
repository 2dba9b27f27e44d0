"""Networks by this checkout and by another commit's: ``python benchmarks/commits.py FOLDER [zoo:NAME…] [--json]``.

FOLDER is a checkout of the other commit in which ``make install`` was run.  Each side has a process of its own, a phone of
its own on this machine and an empty cache, measures each network for ``--budget`` seconds, plans it, and builds the plan and
each processor alone.  Then all six libraries run in turn, so that other work on the machine meets both alike.  ``ours`` is
the least of a side's three: a plan is taken only where it is faster than each processor alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from tvm_codl.cli.main import main as run_command
from tvm_codl.cli.options import json_option
from tvm_codl.cli.output import print_json, talk
from tvm_codl.errors import UserError
from tvm_codl.frontend.zoo import ENTRIES
from tvm_codl.measure.interleave import calm_down
from tvm_codl.report.statistics import Statistics

VARIANTS = ("cpu only", "gpu only", "plan")
OURS = "ours"
HERE = Path(__file__).resolve().parent
#: Rounds of one network take this long, if so few are enough.
SECONDS, FEWEST = 20.0, 5
RUNS = 2


class Side:
    """A checkout's process.  Raises :class:`UserError` where it ends."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        python = folder / ".venv/bin/python"
        if not python.exists():
            raise UserError(f"{folder} has no .venv", f"there is no {python}", f"make -C {folder} install")
        environment = {**os.environ, "TVM_CODL_CACHE": str(cache), "PYTHONPATH": str(folder)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([python, HERE / "commits_worker.py"], cwd=folder, env=environment, **pipes)

    def ask(self, *words: Any) -> Any:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(words), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise UserError(f"the process of {self.folder} ended", f"asked for {words}, code {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def compare(name: str, sides: dict[str, Side], budget_s: float, rounds: int) -> dict[str, Any]:
    """ms of each variant by side, and now over before: the median of the rounds' ratios, with p10 and p90."""
    predicted = {}
    for side, process in sides.items():
        predicted[side] = process.ask("prepare", name, budget_s)["predicted_ms"]
        talk(f"{name} {side}: predicted {predicted[side]:.3f} ms")
    calm_down()
    samples: dict[tuple[str, str], list[float]] = {(side, each): [] for side in sides for each in VARIANTS}

    def go_round() -> float:
        spent = 0.0
        for variant in VARIANTS:
            for side, process in sides.items():
                times = process.ask("time", variant, RUNS)
                samples[side, variant].append(min(times))
                spent += (1 + RUNS) * max(times) / 1e3
        return spent

    wanted = max(FEWEST, min(rounds, int(SECONDS / go_round())))
    for _ in range(wanted - 1):
        go_round()
    ms = {side: {each: float(np.median(samples[side, each])) for each in VARIANTS} for side in sides}
    best = {side: min(VARIANTS, key=lambda each: ms[side][each]) for side in sides}
    ratios = {each: _ratio(samples["now", each], samples["before", each]) for each in VARIANTS}
    ratios[OURS] = _ratio(samples["now", best["now"]], samples["before", best["before"]])
    return {
        "model": name,
        "ms": ms,
        "predicted_ms": predicted,
        "best": best,
        "rounds": wanted,
        "now_over_before": ratios,
    }


def _ratio(now: Sequence[float], before: Sequence[float]) -> Statistics:
    return Statistics.of([a / b for a, b in zip(now, before, strict=True)])


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("models", nargs=-1)
@click.option(
    "--budget", "budget_s", default=8.0, show_default=True, metavar="SECONDS", help="To measure a network for."
)
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True)
@json_option
def main(folder: Path, models: tuple[str, ...], budget_s: float, rounds: int, as_json: bool) -> None:
    """Prints one line for each of MODELS (default: the whole zoo)."""
    names = models or tuple(f"zoo:{entry.name}" for entry in ENTRIES if entry.name != "small")
    rows = []
    with contextlib.ExitStack() as stack:
        caches = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tvm_codl-commits-")))
        sides = {name: Side(path.resolve(), caches / name) for name, path in (("before", folder), ("now", HERE.parent))}
        for side in sides.values():
            stack.callback(side.close)
        for name in names:
            rows.append(compare(name, sides, budget_s, rounds))
            ratios = rows[-1]["now_over_before"].items()
            said = (f"{each} {r.median:.3f} ({r.p10:.3f} to {r.p90:.3f})" for each, r in ratios)
            click.echo(f"{name}: now over before: {', '.join(said)}", err=as_json)
    least = [row["now_over_before"][OURS].median for row in rows]
    summary = {"geometric_mean": float(np.exp(np.mean(np.log(least)))), "slowest": max(least)}
    if as_json:
        return print_json({"before": str(folder), "rows": msgspec.to_builtins(rows), "summary": summary})
    click.echo(f"geometric mean {summary['geometric_mean']:.3f}, slowest {summary['slowest']:.3f}")
    return None


if __name__ == "__main__":
    run_command(main, "commits.py")
