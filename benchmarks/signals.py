"""Ends commands at random moments: ``python benchmarks/signals.py [MODEL] [--count 40] [--json]``.

Each of ``plan``, ``measure``, ``tune`` and ``bench`` in turn gets SIGTERM or SIGINT at a moment of its own, early ones as likely
as late ones.  It must end within seconds, with the signal's exit code and one line, and leave no process and no temporary
file.  Exit code 1 where one did not.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import msgspec
import psutil

from tvm_codl.cli.options import json_option
from tvm_codl.cli.output import print_json, talk
from tvm_codl.paths import cache_dir

COMMANDS = {
    "plan": ["--budget", "5", "--again"],
    "measure": ["--budget", "10s"],
    "tune": ["--processor", "gpu", "--trials", "8"],
    "bench": ["--budget", "5", "--again"],
}
SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: The grace of a command inside a compiler, and as much again for a machine that is shared.
WITHIN_S = 10.0


class Ending(msgspec.Struct, frozen=True):
    """``at_s`` is the signal's moment; ``wrong`` says what was not as it must be."""

    command: str
    signal: str
    at_s: float
    ended_s: float
    wrong: tuple[str, ...]


def end(command: str, model: str, number: signal.Signals, at_s: float, folder: Path) -> Ending | None:
    """None where the command ended by itself before."""
    temporary, cache = folder / "temporary", folder / "cache"
    temporary.mkdir()
    cache.mkdir()
    for name in ("native", "vendors", "opencl.json"):
        if (cache_dir() / name).exists():
            (cache / name).symlink_to(cache_dir() / name)
    line = [sys.executable, "-m", "tvm_codl", command, model, *COMMANDS[command]]
    own = {**os.environ, "TMPDIR": str(temporary), "TVM_CODL_CACHE": str(cache)}
    process = subprocess.Popen(line, cwd=folder, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        process.wait(at_s)
        return None
    except subprocess.TimeoutExpired:
        started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    sent = time.monotonic()
    said = process.communicate()[1].splitlines()
    ended_s = time.monotonic() - sent
    left = psutil.wait_procs(started, WITHIN_S)[1]
    for each in left:
        each.kill()
    wrong = {
        f"exit code {process.returncode}": process.returncode != 128 + number,
        f"ended after {ended_s:.1f} s": ended_s > WITHIN_S,
        f"said {said[-1:]}": not said or f"stopped by {number.name}; " not in said[-1],
        "a traceback": any("Traceback" in each for each in said),
        f"left {[each.pid for each in left]}": bool(left),
        f"left {[each.name for each in temporary.iterdir()]}": any(temporary.iterdir()),
    }
    return Ending(command, number.name, at_s, ended_s, tuple(words for words, is_wrong in wrong.items() if is_wrong))


@click.command()
@click.argument("model", default="zoo:resnet18")
@click.option("--count", type=click.IntRange(1), default=40, show_default=True, help="Signals.")
@click.option("--latest", type=float, default=60.0, show_default=True, help="The last moment, in seconds.")
@click.option("--seed", default=0, show_default=True)
@json_option
def main(model: str, count: int, latest: float, seed: int, as_json: bool) -> None:
    """Prints one line for each signal."""
    random_, endings = random.Random(seed), list[Ending]()
    while len(endings) < count:
        command = list(COMMANDS)[len(endings) % len(COMMANDS)]
        with tempfile.TemporaryDirectory(prefix="tvm_codl-signals-") as folder:
            found = end(command, model, random_.choice(SIGNALS), latest ** random_.uniform(0.1, 1.0), Path(folder))
        if found is not None:
            endings.append(found)
            talk(f"{found.command} at {found.at_s:.1f} s by {found.signal}: {', '.join(found.wrong) or 'right'}")
    right = sum(not each.wrong for each in endings)
    if as_json:
        print_json({"model": model, "right": right, "endings": msgspec.to_builtins(endings)})
    else:
        click.echo(f"{right} of {count} ended as they must")
    sys.exit(right < count)


if __name__ == "__main__":
    main()
