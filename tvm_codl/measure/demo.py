"""What ``tvm-codl demo`` shows: a trained network at its work, and a well-known one for its times."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tvm_codl.errors import CheckFailed
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.picture import demo_picture
from tvm_codl.frontend.text_detection import draw_boxes, find_boxes, overlap, to_input
from tvm_codl.measure.bench import BenchReport, bench
from tvm_codl.measure.context import Context
from tvm_codl.measure.plan_libraries import open_plans
from tvm_codl.measure.planning import make_plan
from tvm_codl.plan.files import dump_plan
from tvm_codl.plan.plan import Plan
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared

FOUND = 0.5  # intersection over union from which a box counts as the word's


class Shown(msgspec.Struct, frozen=True):
    """One model's part of the demo; ``lines`` say what its answer means."""

    source: str
    report: BenchReport
    plan: Path
    lines: tuple[str, ...]


def text_detection(context: Context, folder: Path, budget_s: float, repeat: int) -> Shown:
    """PP-OCRv4 finds the words of a picture whose words are known; the picture with the boxes goes to ``folder``.

    Raises :class:`CheckFailed` where a word is not found.
    """
    source = "zoo:ppocr_det"
    prepared, plan, path = _plan(source, context, folder, budget_s)
    name, (_, _, height, width), *_ = prepared.model.inputs[0]
    picture, words = demo_picture(height, width)
    module = open_plans(prepared, {"": plan}, context)[""]
    answer = module.run({name: to_input(picture, height, width)})[0]
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
    return Shown(source, bench(prepared, context, plan, str(path), repeat), path, tuple(lines))


def classification(context: Context, folder: Path, budget_s: float, repeat: int) -> Shown:
    """ResNet-18 with seeded weights: its times, and its error against onnxruntime."""
    source = "zoo:resnet18"
    prepared, plan, path = _plan(source, context, folder, budget_s)
    return Shown(source, bench(prepared, context, plan, str(path), repeat), path, ())


def _plan(source: str, context: Context, folder: Path, budget_s: float) -> tuple[Prepared, Plan, Path]:
    prepared = prepare(load_model(source))
    context.log(f"{prepared.name}: {len(prepared.graph.operators)} operators; measuring and planning")
    plan = make_plan(prepared, context, budget_s)
    path = folder / f"{prepared.name}.plan.json"
    dump_plan(plan, path)
    return prepared, plan, path
