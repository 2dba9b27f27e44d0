"""What checked import costs: ``python benchmarks/import_check.py [MODEL...] [--plan SECONDS]``.

Prints JSON: for each network the seconds to load it, to prepare it for a plan, what checking its import adds to that the
first time (the check runs beside the preparation; ``_cpu``: of processors, which other load on the machine does not count
in), and to find that it was checked before; with ``--plan``, those of planning it behind that, from an empty store, with so
many seconds to measure for, and the share of the check in all of it.
Each network has a process, a cache folder and a store of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click

from tvm_codl.frontend import zoo
from tvm_codl.paths import cache_dir


def times(source: str, plan_s: float) -> dict[str, float]:
    """Seconds of each step, in this process, whose cache folder is empty."""
    from tvm_codl import api
    from tvm_codl.frontend.load import load_model
    from tvm_codl.measure.checked_import import check_import
    from tvm_codl.relay.pipeline import prepare

    found = {}
    began = time.perf_counter()
    model = load_model(source)
    found["load_s"] = time.perf_counter() - began
    began, busy = time.perf_counter(), _cpu_s()
    check_import(model, meanwhile=lambda: prepare(model))
    both_s, both_cpu_s = time.perf_counter() - began, _cpu_s() - busy
    began, busy = time.perf_counter(), _cpu_s()
    prepared = prepare(model)
    found["prepare_s"] = time.perf_counter() - began
    found |= {"check_s": both_s - found["prepare_s"], "check_cpu_s": both_cpu_s - (_cpu_s() - busy)}
    began = time.perf_counter()
    check_import(model)
    found["again_s"] = time.perf_counter() - began
    if plan_s:
        began = time.perf_counter()
        with api.connect() as session:
            session.plan(prepared, plan_s, again=True)
        found["plan_s"] = time.perf_counter() - began
        found["share"] = found["check_s"] / (found["load_s"] + both_s + found["plan_s"])
    return found


def _cpu_s() -> float:
    """Of this process and those that it ended."""
    return sum(os.times()[:4])


@click.command()
@click.argument("sources", metavar="[MODEL]...", nargs=-1)
@click.option("--plan", "plan_s", type=float, default=0.0, help="Also plan, with so many seconds to measure for.")
@click.option("--here", is_flag=True, hidden=True)
def main(sources: tuple[str, ...], plan_s: float, here: bool) -> None:
    if here:
        print(json.dumps(times(sources[0], plan_s)))
        return
    results = {}
    for source in sources or [f"zoo:{entry.name}" for entry in zoo.ENTRIES]:
        with tempfile.TemporaryDirectory(prefix="tvm-codl-import-") as folder:
            (Path(folder) / "native").symlink_to(
                cache_dir() / "native"
            )  # the plugin is the installation's, not a network's
            done = subprocess.run(
                [sys.executable, __file__, source, "--here", "--plan", str(plan_s)],
                env={**os.environ, "TVM_CODL_CACHE": folder}, stdout=subprocess.PIPE, check=True, text=True,
            )  # fmt: skip
        results[source] = {name: round(value, 3) for name, value in json.loads(done.stdout).items()}
        print(source, results[source], file=sys.stderr)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
