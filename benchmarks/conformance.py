"""ONNX's own tests, loaded, split, built and run: ``python benchmarks/conformance.py [--json] [--only WORDS] [--results
FILE]``.

Prints how many are right, refused (by reason), wrong, or end in a traceback, and the cases of each.  Cases run in
processes of their own: one that crashes or hangs counts as a traceback.  With ``--results`` each outcome is kept as a line of
JSON, and a later run goes on from there.  Exit code 4 where an answer is wrong or a case ends in a traceback.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import msgspec
from rich.table import Table

from benchmarks.conformance_cases import Case, cases
from benchmarks.conformance_run import On, Outcome, run_case
from tvm_codl.cli.output import print_json, print_table, talk
from tvm_codl.runtime import opencl, plugin

KINDS = ("node", "simple", "light")
FORK = multiprocessing.get_context("fork")


def summary(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Counts, the cases of each reason, and the cases that are wrong or end in a traceback with what was found."""
    by_end = {end: [o for o in outcomes if o.end == end] for end in ("right", "refused", "wrong", "traceback")}
    counts = Counter(o.reason for o in by_end["refused"])
    reasons = {
        reason: {"count": n, "cases": [o.name for o in by_end["refused"] if o.reason == reason]}
        for reason, n in counts.most_common()
    }
    return {
        **{end: len(found) for end, found in by_end.items()},
        "reasons": reasons,
        "wrong_cases": {o.name: o.evidence for o in by_end["wrong"]},
        "traceback_cases": {o.name: f"{o.stage}: {o.reason}" for o in by_end["traceback"]},
        "right_cases": [o.name for o in by_end["right"]],
    }


class Worker:
    """A process that runs cases one after the other; a new one takes its place once it has died or was too slow."""

    def __init__(self, on: On) -> None:
        self.connection, theirs = FORK.Pipe()
        self.process = FORK.Process(target=_work, args=(theirs, on), daemon=False)
        self.process.start()
        theirs.close()
        self.case: Case | None = None
        self.until = 0.0

    def give(self, case: Case, limit_s: float) -> None:
        self.case, self.until = case, time.monotonic() + limit_s
        self.connection.send(case)

    def stop(self) -> int:
        self.process.kill()
        self.process.join()
        self.connection.close()
        return self.process.exitcode or 0


def _work(to: Connection, on: On) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    if on != "load":
        plugin.load()
    while True:
        to.send_bytes(msgspec.json.encode(run_case(to.recv(), on)))


def run_all(todo: Sequence[Case], jobs: int, limit_s: float, on: On) -> Iterator[Outcome]:
    """The outcomes, as they come, of cases in ``jobs`` processes at a time."""
    waiting, workers = list(reversed(todo)), [Worker(on) for _ in range(min(jobs, len(todo)))]
    try:
        while waiting or any(worker.case for worker in workers):
            for worker in workers:
                if worker.case is None and waiting:
                    worker.give(waiting.pop(), limit_s)
            ready = wait([worker.connection for worker in workers if worker.case], timeout=1.0)
            for number, worker in enumerate(workers):
                case = worker.case
                if case is None or (worker.connection not in ready and time.monotonic() < worker.until):
                    continue
                if worker.connection in ready:
                    try:
                        outcome = msgspec.json.decode(worker.connection.recv_bytes(), type=Outcome)
                        worker.case = None
                        yield outcome
                        continue
                    except (EOFError, ConnectionResetError):
                        worker.process.join()
                        why = f"its process ends with code {worker.process.exitcode}"
                else:
                    why = f"takes longer than {limit_s:.0f} s"
                worker.stop()
                workers[number] = Worker(on)
                yield Outcome(case.name, case.kind, "traceback", "", why)
    finally:
        for worker in workers:
            worker.stop()


def read_results(path: Path | None) -> dict[str, Outcome]:
    if path is None or not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {o.name: o for o in (msgspec.json.decode(line, type=Outcome) for line in lines)}


def print_summary(found: dict[str, object]) -> None:
    print_table(_table("end", [(end, found[end]) for end in ("right", "refused", "wrong", "traceback")]))
    reasons: dict[str, dict[str, object]] = found["reasons"]  # type: ignore[assignment]
    print_table(_table("refused because", [(reason, each["count"]) for reason, each in reasons.items()]))
    for title in ("wrong_cases", "traceback_cases"):
        for name, words in found[title].items():  # type: ignore[attr-defined]
            click.echo(f"{title.removesuffix('_cases')}  {name}: {words[:200]}")


def _table(what: str, rows: Sequence[tuple[str, object]]) -> Table:
    table = Table(what, "cases")
    for name, count in rows:
        table.add_row(name, str(count))
    return table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--only", metavar="WORDS", default="", help="Only cases whose name has one of these words.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=KINDS, help="Only these kinds.")
@click.option("--limit", type=click.IntRange(1), help="At most so many cases.")
@click.option(
    "--on",
    type=click.Choice(["split", "cpu", "gpu", "load"]),
    default="split",
    show_default=True,
    help="Where operators run; load: what is right then has not run.",
)
@click.option("--shuffle", type=int, metavar="SEED", help="In another order: an unfinished run is then a sample.")
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Cases at a time.")
@click.option("--seconds", type=float, default=600.0, show_default=True, help="For one case.")
@click.option(
    "--results", type=click.Path(dir_okay=False, path_type=Path), help="Keep outcomes here, and go on from there."
)
def main(
    as_json: bool,
    only: str,
    kinds: tuple[str, ...],
    limit: int | None,
    on: On,
    shuffle: int | None,
    jobs: int,
    seconds: float,
    results: Path | None,
) -> None:
    words = only.replace(",", " ").split()
    chosen = [case for case in cases(kinds) if not words or any(word in case.name for word in words)][:limit]
    done = read_results(results)
    if on != "load":
        os.environ.update(opencl.environment())
        os.environ.setdefault("CODL_GPU_CORES", str(max(os.sched_getaffinity(0))))
    todo = [case for case in chosen if case.name not in done]
    if shuffle is not None:
        random.Random(shuffle).shuffle(todo)
    for number, outcome in enumerate(run_all(todo, jobs, seconds, on), 1):
        done[outcome.name] = outcome
        if results is not None:
            with results.open("ab") as file:
                file.write(msgspec.json.encode(outcome) + b"\n")
        if number % 50 == 0:
            talk(f"{number} of {len(todo)} cases")
    found = summary([done[case.name] for case in chosen])
    if as_json:
        print_json(found)
    else:
        print_summary(found)
    sys.exit(4 if found["wrong"] or found["traceback"] else 0)


if __name__ == "__main__":
    main()
