"""How fast a page of ``tvm-codl report`` is in a browser: ``python benchmarks/page.py FILE… [--json]``.

Each file is opened several times in the system's Chromium, without a window: ms until something is drawn, and from a click on
an operator until its panel is drawn.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click
import msgspec
from playwright.sync_api import sync_playwright

from tvm_codl.cli.options import FILE, json_option
from tvm_codl.cli.output import print_json
from tvm_codl.errors import UsageError
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
    file: str
    bytes: int
    operators: int
    first_paint_ms: Statistics
    click_ms: Statistics


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@json_option
def main(files: tuple[Path, ...], rounds: int, as_json: bool) -> None:
    """Prints one line for each of FILES."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise UsageError("there is no chromium here", next="as root: docker/install/browser.sh")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        rows = [measure(browser, file, rounds) for file in files]
        browser.close()
    if as_json:
        return print_json(rows)
    for row in rows:
        times = f"first paint {row.first_paint_ms.median:.0f} ms, click {row.click_ms.median:.0f} ms"
        click.echo(f"{row.file}: {row.operators} operators, {row.bytes} bytes, {times} (p90 {row.click_ms.p90:.0f})")
    return None


def measure(browser: Any, file: Path, rounds: int) -> Row:
    paints, clicks, operators = [], [], 0
    for _ in range(rounds):
        tab = browser.new_page()
        tab.goto(file.resolve().as_uri())
        paints.append(float(tab.evaluate(_PAINT)))
        clicks += [float(tab.evaluate(_CLICK, number / (CLICKS - 1))) for number in range(CLICKS)]
        operators = tab.locator("#list li").count()
        tab.close()
    return Row(str(file), file.stat().st_size, operators, Statistics.of(paints), Statistics.of(clicks))


if __name__ == "__main__":
    main()
