"""How well are operators' times predicted?  ``python benchmarks/accuracy.py MODEL... [--shapes FILE] --records FOLDER``.

Measures the operators of networks, and of a table of convolution shapes, whole and in pieces, in several rounds that follow
each other, so that what disturbs the machine for some minutes meets every piece in one round only.  Then shapes are held
out whole, a fifth at a time, and predicted from the others: ``tvm-codl evaluate`` on all the rounds' repeats.

``--shapes`` is CSV as CoDL's ``dataset_conv2d_*.csv``: a row a convolution with the columns IH, IW, IC, OC, KH, KW, SH, SW,
DH and DW (dilations of 0, as that table has for VGG-16, mean 1); padding is SAME.  ``--records FOLDER`` keeps one store a network and round; what is there is not measured again.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tvm_codl.cli.main import main as run_command
from tvm_codl.cli.options import FILE, PhoneChoice, json_option, phone_options
from tvm_codl.cli.output import print_json, print_table, talk
from tvm_codl.cost.evaluation.held_out import hold_out
from tvm_codl.cost.training import choose
from tvm_codl.errors import UserError
from tvm_codl.frontend.load import load_model
from tvm_codl.kernels.reuse import load_tunings
from tvm_codl.measure.measurer import Measurer
from tvm_codl.measure.probe import Probe, split_probes, whole_probes
from tvm_codl.plan.candidates import preferred_cuts
from tvm_codl.plan.plan import Placement
from tvm_codl.records.exchange import merge
from tvm_codl.records.store import RecordStore
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report import evaluation as report

COLUMNS = ("IH", "IW", "IC", "OC", "KH", "KW", "SH", "SW", "DH", "DW")


def shapes_of(path: Path) -> list[tuple[int, ...]]:
    """The distinct rows of :data:`COLUMNS`.  Raises :class:`UserError` for a file that has not all of them."""
    try:
        with path.open(newline="") as file:
            rows = [
                tuple(int(row[name]) or int(name in ("DH", "DW")) for name in COLUMNS) for row in csv.DictReader(file)
            ]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} holds no convolution shapes", str(error), f"a CSV file with {', '.join(COLUMNS)}"
        ) from error
    if not rows or min(min(row) for row in rows) < 1:
        raise UserError(f"{path} holds no convolution shapes", "no rows, or an extent below 1")
    return list(dict.fromkeys(rows))


def convolutions(shapes: Sequence[tuple[int, ...]], path: Path) -> Path:
    """Writes an ONNX network of one convolution with bias and ReLU a shape, none of which feeds another."""
    random = np.random.default_rng(0)
    nodes, weights, inputs, outputs = [], [], [], []
    for i, (height, width, channels, filters, kh, kw, sh, sw, dh, dw) in enumerate(shapes):
        kernel = random.standard_normal((filters, channels, kh, kw)).astype("float32") / (channels * kh * kw) ** 0.5
        bias = random.standard_normal(filters).astype("float32")
        weights += [numpy_helper.from_array(kernel, f"w{i}"), numpy_helper.from_array(bias, f"b{i}")]
        before, after = zip(*(_same(*each) for each in ((height, kh, sh, dh), (width, kw, sw, dw))), strict=True)
        attributes: dict[str, Any] = {"strides": (sh, sw), "dilations": (dh, dw), "pads": (*before, *after)}
        nodes.append(helper.make_node("Conv", [f"x{i}", f"w{i}", f"b{i}"], [f"c{i}"], **attributes))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"y{i}"]))
        inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, (1, channels, height, width)))
        out = (1, filters, -(-height // sh), -(-width // sw))
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, out))
    graph = helper.make_graph(nodes, "shapes", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def _same(extent: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Padding before and after, as TensorFlow's SAME has it."""
    total = max((-(-extent // stride) - 1) * stride + (kernel - 1) * dilation + 1 - extent, 0)
    return total // 2, total - total // 2


def pieces(prepared: Prepared, parts: int) -> list[Probe]:
    """The operators, and both pieces of splits about ``parts``-ths apart, at cuts among which plans choose."""
    graph, axes = prepared.graph, prepared.axes
    places = [
        (o.id, Placement("split", axis.name, at))
        for o in graph.operators
        for axis in axes.get(o.id, {}).values()
        for at in preferred_cuts(axis, (), parts - 1)
    ]
    return whole_probes(graph) + split_probes(graph, axes, places)


def networks(sources: Sequence[str], shapes: Path | None) -> Iterator[tuple[str, Prepared]]:
    for source in sources:
        yield source.removeprefix("zoo:").replace("/", "_"), prepare(load_model(source))
    if shapes is not None:
        with tempfile.TemporaryDirectory() as folder:
            yield shapes.stem, prepare(load_model(str(convolutions(shapes_of(shapes), Path(folder) / "shapes.onnx"))))


@click.command()
@click.argument("sources", metavar="MODEL...", nargs=-1)
@phone_options
@click.option("--shapes", type=FILE, help="Also a table of convolutions.")
@click.option(
    "--parts", type=click.IntRange(2), default=4, show_default=True, help="Cuts about so many-ths of an axis apart."
)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="How often all is measured.")
@click.option(
    "--records", type=click.Path(file_okay=False, path_type=Path), required=True, help="Keep the rounds here."
)
@json_option
def main(
    sources: Sequence[str], phone: PhoneChoice, shapes: Path | None, parts: int, rounds: int, as_json: bool
) -> None:
    if not sources and shapes is None:
        raise click.UsageError("there is nothing to measure: name a MODEL, or --shapes")
    records = phone.records
    records.mkdir(parents=True, exist_ok=True)
    found = list(networks(sources, shapes))
    for number in range(rounds):
        for name, prepared in found:
            with replace(phone, records=records / f"{name}.{number}.sqlite").connect() as session:
                # A table's convolutions stand alone: the layouts of what goes in and out are no part of them.
                kinds = {o.id: o.kind for o in prepared.graph.operators}
                lone = shapes is not None and name == shapes.stem
                probes = pieces(prepared, parts)
                probes = [p for p in probes if not lone or kinds[p.operator] == "conv2d"]
                talk(f"round {number + 1} of {rounds}: {len(probes)} pieces of {name}")
                Measurer.of(prepared, session).measure(probes)
    # In round order: the repeats of a piece are all those of its records.
    merged = records / "all.sqlite"
    merged.unlink(missing_ok=True)
    with RecordStore(merged) as together:
        merge([records / f"{name}.{number}.sqlite" for number in range(rounds) for name, _ in found], together)
    chosen = choose(merged, "", "", log=talk)
    result = hold_out(chosen.samples, chosen.facts, load_tunings([]), chosen.device)
    talk(f"{len(chosen.records)} records")
    if as_json:
        print_json(result)
    else:
        print_table(report.table(result.results, "shapes held out whole"))


if __name__ == "__main__":
    run_command(main, "accuracy.py")
