"""What ``tvm-codl demo`` shows: a trained network at its work, and a well-known one for its times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tvm_codl.errors import CheckFailed
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.picture import demo_picture
from tvm_codl.frontend.text_detection import draw_boxes, find_boxes, overlap, to_input
from tvm_codl.kernels.toolchain import toolchain
from tvm_codl.measure.bench import BenchReport, bench
from tvm_codl.measure.workflow import library_for, make_plan, open_library, prepare
from tvm_codl.plan.files import dump_plan

Log = Callable[[str], None]
FOUND = 0.5  # intersection over union from which a box counts as the word's


class Shown(msgspec.Struct, frozen=True):
    """One model's part of the demo; ``lines`` say what its answer means."""

    source: str
    report: BenchReport
    plan: Path
    lines: tuple[str, ...]


def text_detection(phone: Any, folder: Path, *, budget_s: float, repeat: int, log: Log) -> Shown:
    """PP-OCRv4 finds the words of a picture whose words are known; the picture with the boxes goes to ``folder``.

    Raises :class:`CheckFailed` where a word is not found.
    """
    source = "zoo:ppocr_det"
    prepared = prepare(load_model(source))
    _, _, height, width = prepared.model.inputs[0][1]
    picture, words = demo_picture(height, width)
    log(f"{prepared.name}: {len(prepared.graph.operators)} operators; measuring and planning")
    plan = make_plan(prepared, phone, budget_s=budget_s, log=log)
    path = folder / f"{prepared.name}.plan.json"
    dump_plan(plan, path)
    module = open_library(library_for(prepared, plan, toolchain(phone.profile), log), phone)
    answer = module.run({prepared.model.inputs[0][0]: to_input(picture, height, width)})[0]
    boxes = find_boxes(answer, picture.shape)
    drawn = folder / "text.png"
    draw_boxes(picture, boxes, drawn)
    lines = [f"{len(boxes)} text boxes found, drawn into {drawn}"]
    for word in words:
        best = max(boxes, key=lambda box: overlap(word.bounds, box.bounds), default=None)
        if best is None or overlap(word.bounds, best.bounds) < FOUND:
            raise CheckFailed(f"the words {word.text!r} were not found", f"boxes: {[b.bounds for b in boxes]}")
        left, top, right, bottom = (round(edge) for edge in best.bounds)
        lines.append(f"  {word.text:16s} at ({left}, {top}) to ({right}, {bottom}), score {best.score:.2f}")
    report = bench(prepared, phone, plan=plan, plan_path=str(path), repeat=repeat, log=log)
    return Shown(source, report, path, tuple(lines))


def classification(phone: Any, folder: Path, *, budget_s: float, repeat: int, log: Log) -> Shown:
    """ResNet-18 with seeded weights: its times, and its error against onnxruntime."""
    source = "zoo:resnet18"
    prepared = prepare(load_model(source))
    log(f"{prepared.name}: {len(prepared.graph.operators)} operators; measuring and planning")
    plan = make_plan(prepared, phone, budget_s=budget_s, log=log)
    path = folder / f"{prepared.name}.plan.json"
    dump_plan(plan, path)
    report = bench(prepared, phone, plan=plan, plan_path=str(path), repeat=repeat, log=log)
    return Shown(source, report, path, ())
