"""How long ``tvm-codl report`` takes, and how fast its page is in a browser: ``python benchmarks/page.py MODEL… [--json]``.

The command runs as a user's does, a process each time, for a network that it has imported before.  Each page is opened several
times in the system's Chromium, without a window: ms until something is drawn, and from a click on an operator until its
panel is drawn.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import msgspec
from playwright.sync_api import sync_playwright

from tvm_codl.cli.options import json_option
from tvm_codl.cli.output import print_json
from tvm_codl.errors import UsageError, UserError
from tvm_codl.report.statistics import Statistics

#: Operators that are clicked in one opened page, evenly over the list.
CLICKS = 10
_PAINT = """() => new Promise((done) => {
  new PerformanceObserver((seen) => done(seen.getEntries()[0].startTime)).observe({ type: "paint", buffered: true });
})"""
_CLICK = """async (share) => {
  const items = document.getElementById("list").children;
  const begin = performance.now();
  items[Math.floor(share * (items.length - 1))].click();
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  return performance.now() - begin;
}"""


class Row(msgspec.Struct, frozen=True):
    model: str
    bytes: int
    operators: int
    written_s: Statistics
    first_paint_ms: Statistics
    click_ms: Statistics


@click.command()
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@json_option
def main(models: tuple[str, ...], rounds: int, as_json: bool) -> None:
    """Prints one line for each MODEL (an ONNX or TFLite file, or zoo:NAME)."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise UsageError("there is no chromium here", next="as root: docker/install/browser.sh")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory(prefix="tvm-codl-") as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        rows = [measure(browser, model, Path(folder) / "page.html", rounds) for model in models]
        browser.close()
    if as_json:
        return print_json(rows)
    for row in rows:
        written = f"written in {row.written_s.median:.1f} s ({row.written_s.p10:.1f} to {row.written_s.p90:.1f})"
        times = f"first paint {row.first_paint_ms.median:.0f} ms, click {row.click_ms.median:.0f} ms"
        click.echo(f"{row.model}: {row.operators} operators, {row.bytes} bytes, {written}, {times}")
    return None


def measure(browser: Any, model: str, page: Path, rounds: int) -> Row:
    write(model, page)  # imports it, and measures the phone where nothing is on record
    seconds = [write(model, page) for _ in range(rounds)]
    paints, clicks, operators = [], [], 0
    for _ in range(rounds):
        tab = browser.new_page()
        tab.goto(page.as_uri())
        paints.append(float(tab.evaluate(_PAINT)))
        clicks += [float(tab.evaluate(_CLICK, number / (CLICKS - 1))) for number in range(CLICKS)]
        operators = tab.locator("#list li").count()
        tab.close()
    times = (Statistics.of(each) for each in (seconds, paints, clicks))
    return Row(model, page.stat().st_size, operators, *times)


def write(model: str, page: Path) -> float:
    """Writes the page; returns the seconds it took."""
    begin = time.monotonic()
    line = [sys.executable, "-m", "tvm_codl", "report", model, "-o", str(page)]
    done = subprocess.run(line, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise UserError(f"{model} has no page", done.stderr.strip().splitlines()[-1])
    return time.monotonic() - begin


if __name__ == "__main__":
    main()
