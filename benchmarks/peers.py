"""Networks by us and by what their users have already: ``python benchmarks/peers.py MODEL… [--json]``.

Each of the ONNX and TFLite files or ``zoo:NAME`` runs on each processor alone, by its validated plan, and on all of this
machine's cores by onnxruntime or, a TFLite file, by LiteRT.  All of them take their turns in one run, so two models can be
compared as well, such as a network of 8-bit integers with that of float32.  The phone must be a local one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

os.environ.setdefault("TOPHUB_LOCATION", "NONE")

import click
import msgspec
import numpy as np
import onnxruntime

from tvm_codl.api import Session
from tvm_codl.cli.options import PhoneChoice, json_option, phone_options, records_option, tuning_records_option
from tvm_codl.cli.output import print_json, talk
from tvm_codl.errors import UserError
from tvm_codl.frontend.interpreter import Interpreter
from tvm_codl.frontend.load import load_model
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.frontend.tflite_file import is_tflite
from tvm_codl.measure.answers import check_answer
from tvm_codl.measure.interleave import RUNS, calm_down, sample
from tvm_codl.measure.plan_libraries import open_runnable
from tvm_codl.plan.plan import uniform_plan
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report.statistics import Statistics

#: Makes the samples of one turn, in ms.
Turn = Callable[[], list[float]]


class Row(msgspec.Struct, frozen=True):
    """``ms`` by ``cpu``, ``gpu``, ``plan`` and ``peer``; ``peer_over_plan`` > 1: ours is faster; ``max_rel_err`` of the plan."""

    model: str
    peer: str
    ms: dict[str, Statistics]
    peer_over_plan: float
    speedup: float
    max_rel_err: float


def peer(path: Path, inputs: Mapping[str, np.ndarray]) -> tuple[str, Callable[[], object]]:
    """The name of the other program, and one run of the file by it on all cores that this process may use."""
    cores = len(os.sched_getaffinity(0))
    if is_tflite(path):
        interpreter = Interpreter(model_path=str(path), num_threads=cores)
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], inputs[detail["name"]])
        return "LiteRT", interpreter.invoke
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return f"onnxruntime {onnxruntime.__version__}", lambda: session.run(None, dict(inputs))


def turn_of(run: Callable[[], object]) -> Turn:
    """Times ``run`` as :func:`sample` times a module: the first run after another's does not count."""

    def turn() -> list[float]:
        times = []
        for _ in range(1 + RUNS):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
        return times[1:]

    return turn


def ours(prepared: Prepared, session: Session, budget_s: float) -> tuple[dict[str, Turn], float]:
    """The turns of each processor alone and of the plan, and the largest relative error of their answers."""
    plans = {on: uniform_plan(prepared.graph, on, prepared.name) for on in ("cpu", "gpu")}
    _, modules = open_runnable(prepared, {**plans, "plan": session.plan(prepared, budget_s)}, session)
    inputs = prepared.model.sample_inputs()
    wanted = reference_outputs(prepared.model, inputs)
    errors = [check_answer(n, m, inputs, wanted, quanta=prepared.model.quanta)[1] for n, m in modules.items()]
    return {name: lambda m=module: sample(m) for name, module in modules.items()}, max(errors)


@click.command()
@click.argument("models", nargs=-1, required=True)
@phone_options
@records_option
@tuning_records_option
@click.option("--budget", "budget_s", default=60.0, metavar="SECONDS", help="To measure each network for.")
@click.option("--rounds", type=click.IntRange(1), default=30, show_default=True)
@json_option
def main(models: tuple[str, ...], phone: PhoneChoice, budget_s: float, rounds: int, as_json: bool) -> None:
    """Prints one line for each of MODELS."""
    turns: dict[tuple[str, str], Turn] = {}
    peers, errors = {}, {}
    with phone.connect() as session:
        for name in models:
            prepared = prepare(load_model(name))
            if prepared.model.path is None:
                raise UserError(f"{name} is no file", "another program cannot run it", "name an ONNX or TFLite file")
            found, errors[name] = ours(prepared, session, budget_s)
            peers[name], run = peer(prepared.model.path, prepared.model.sample_inputs())
            turns |= {(name, variant): turn for variant, turn in {**found, "peer": turn_of(run)}.items()}
        calm_down()
        samples: dict[tuple[str, str], list[float]] = {key: [] for key in turns}
        for done in range(rounds):
            for key, turn in turns.items():
                samples[key] += turn()
            if done % 10 == 9:
                talk(f"{done + 1} of {rounds} rounds")
        device = session.device
    rows = []
    for name in models:
        ms = {variant: Statistics.of(times) for (model, variant), times in samples.items() if model == name}
        alone = min(ms[on].median for on in ("cpu", "gpu") if on in ms)
        plan = ms["plan"].median
        rows.append(Row(name, peers[name], ms, ms["peer"].median / plan, alone / plan, errors[name]))
    if as_json:
        return print_json({"device": device, "rows": msgspec.to_builtins(rows)})
    for row in rows:
        times = "  ".join(
            f"{variant} {each.median:.3f} ms ({each.p10:.3f} to {each.p90:.3f})" for variant, each in row.ms.items()
        )
        click.echo(f"{row.model}: {times}; {row.peer} takes {row.peer_over_plan:.2f} of the plan's time")
    return None


if __name__ == "__main__":
    main()
