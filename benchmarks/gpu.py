"""Convolutions on a phone's GPU against stock TVM and cuDNN: ``python benchmarks/gpu.py [MODEL…] [--json]``.

Each distinct convolution and dense layer of the networks (plain: without bias and activation) by our estimate, by the tuned
records, by TVM's own template tuned with ``--stock-trials``, and by PyTorch (cuDNN, float32 without TF32) where torch with
CUDA is installed.  One sample is many runs back to back, waited for once; ours are in NHWC, the others in NCHW.  Round
after round each of them has its turn.  A stock template takes a minute or two to tune, most of it NVIDIA's compiler: with
``--rounds 0`` several runs tune a ``--share`` each, side by side, and another one compares.  ``kernels_ms`` is by the GPU's
own clock, without what is between two kernels.

``--kernel-in-library`` compares the convolutions of each network alone, in the tuner and in a library, and a run with the
sum of its operators.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import tvm
from gpu_convolutions import Wanted, find
from gpu_cudnn import CudnnConvolution, torch_with_cuda
from gpu_kernels import OnPhone, builder_for, our_inputs
from gpu_library import TIMES, compare_network
from gpu_rows import Row, summary
from gpu_stock import Stock
from tvm.autotvm.measure import MeasureInput

from tvm_codl.api import Session
from tvm_codl.cli.main import main as run_command
from tvm_codl.cli.options import FILE, PhoneChoice, json_option, phone_options, records_option, tuning_records_option
from tvm_codl.cli.output import print_json, talk
from tvm_codl.device.peak import measure_peak
from tvm_codl.errors import DeviceError
from tvm_codl.kernels.target import gpu_of
from tvm_codl.report.statistics import Statistics
from tvm_codl.runtime.error_text import last_line

MODELS = ("resnet18", "resnet50_v1", "vgg16", "mobilenet_v2", "yolov2")
VARIANTS = ("estimate", "tuned", "stock", "cudnn")


class Listed(msgspec.Struct, frozen=True):
    """The convolutions of ``models`` with the workloads of kernels for a GPU of that kind and width of vectors."""

    gpu: tuple[str, int]
    models: tuple[str, ...]
    wanted: tuple[Wanted, ...]


@click.command()
@click.argument("models", nargs=-1)
@phone_options
@records_option
@tuning_records_option
@click.option(
    "--stock-trials", default=0, show_default=True, help="Trials of TVM's template for each; 0: leave it out."
)
@click.option(
    "--stock-records",
    type=FILE,
    metavar="FILE",
    help="The best of each are added to FILE; what it has is not tuned again.",
)
@click.option("--share", default="0/1", metavar="I/N", help="Of the convolutions every Nth, from the Ith on.")
@click.option("--rounds", type=click.IntRange(0), default=7, show_default=True, help="0: tune the stock template only.")
@click.option("--only", default="", metavar="WORDS", help="Only convolutions whose name has these words.")
@click.option("--limit-s", type=float, default=0.0, help="Seconds for all; what is not done then is left out.")
@click.option("--seed", default=0, help="Of the stock template's trials.")
@click.option("--convolutions", type=FILE, help="The list of convolutions: read if the file exists, else written.")
@click.option("--kernel-in-library", is_flag=True, help="Each convolution alone, in the tuner and in a library.")
@json_option
def main(
    models: tuple[str, ...],
    phone: PhoneChoice,
    stock_trials: int,
    stock_records: Path | None,
    share: str,
    rounds: int,
    only: str,
    limit_s: float,
    seed: int,
    convolutions: Path | None,
    kernel_in_library: bool,
    as_json: bool,
) -> None:
    """Prints one line for each convolution of MODELS, networks of the zoo."""
    models, until = models or MODELS, time.monotonic() + (limit_s or float("inf"))
    with phone.connect() as session:
        if kernel_in_library:
            report: dict[str, Any] = {"library": [compare_network(model, session) for model in models]}
            return print_json(report) if as_json else _print_libraries(report["library"])
        wanted = [each for each in _listed(models, session, convolutions) if only in each.convolution.name]
        first, every = map(int, share.split("/"))
        wanted = wanted[first::every]
        stock = Stock(stock_trials, stock_records, session, seed)
        if not rounds:
            return tune_stock(wanted, stock, until)
        peak = _peak(session)
        talk(f"{len(wanted)} convolutions, peak {peak:.0f} GFLOP/s")
        rows = measure(wanted, session, peak, stock, rounds, until)
        report = {
            "device": session.device,
            "gpu": session.profile.gpu_name,
            "peak_gflops": peak,
            "left_out": len(wanted) - len(rows),
            "rows": rows,
            "summary": summary(rows),
        }
    print_json(msgspec.to_builtins(report)) if as_json else _print(rows, report)


def _peak(session: Session) -> float:
    """GFLOP/s of float32.  Raises :class:`DeviceError` at a phone whose runtime does not measure it."""
    peak = measure_peak(session.phone)
    if peak is None:
        raise DeviceError(
            "the GPU's peak is unknown", "the phone's runtime is older than its measurement", "tvm-codl device push"
        )
    return peak.float32_gflops


def _listed(models: Sequence[str], session: Session, path: Path | None) -> list[Wanted]:
    """From the file at ``path`` if it was written for a GPU of this kind: reading large networks takes a while."""
    gpu = gpu_of(session.tools.gpu)
    kind = (gpu.kind, gpu.lanes)
    if path is not None and path.exists():
        read = msgspec.json.decode(path.read_bytes(), type=Listed)
        if read.gpu == kind and read.models == tuple(models):
            return list(read.wanted)
    wanted = find(models, session.tools.gpu)
    if path is not None:
        path.write_bytes(msgspec.json.encode(Listed(kind, tuple(models), tuple(wanted))))
    return wanted


def tune_stock(wanted: Sequence[Wanted], stock: Stock, until: float) -> None:
    """Tunes the stock template of each convolution, in even parts of the time that is left."""
    for _, each, share_s in _in_time(wanted, until):
        best = stock.best(each.convolution, time.monotonic() + share_s)
        talk(f"{each.convolution.name}: the stock template is tuned, {len(best)} of its best kept")


def _in_time(wanted: Sequence[Wanted], until: float) -> Iterator[tuple[int, Wanted, float]]:
    """Each with its number and its share of the seconds that are left, until the time is up."""
    for index, each in enumerate(wanted):
        left_s, left = until - time.monotonic(), len(wanted) - index
        if left_s < 0:
            return talk(f"the time is up: {left} convolutions are left out")
        yield index, each, left_s / left
    return None


def measure(
    wanted: Sequence[Wanted], session: Session, peak: float, stock: Stock, rounds: int, until: float
) -> list[Row]:
    """Builds our kernels first; then tunes the stock template of each convolution and times its variants in turn."""
    estimates, tuned = our_inputs(wanted, session)
    ours, theirs = builder_for(session), builder_for(session)
    try:
        built = _built(ours, {(i, "estimate"): e for i, e in enumerate(estimates)} | _present("tuned", tuned))
        torch = torch_with_cuda()
        rows: list[Row] = []
        for index, each, share_s in _in_time(wanted, until):
            variants = {name: built[index, name] for name in VARIANTS if (index, name) in built}
            if best := stock.best(each.convolution, time.monotonic() + 0.9 * share_s):
                variants["stock"] = fastest(theirs.build(best), session)
            rows.append(_measured(each, variants, session, peak, rounds, torch))
        return rows
    finally:
        ours.close()
        theirs.close()


def fastest(built: Sequence[Any], session: Session) -> Any:
    """The kernel that takes least, each timed alone; the first where none runs."""
    times: list[tuple[float, Any]] = []
    for each in built:
        with contextlib.suppress(tvm.error.TVMError):
            if hasattr(each, "function"):
                times.append((OnPhone(session, each).sample(), each))
    return min(times, key=lambda pair: pair[0])[1] if times else built[0]


def _present(name: str, inputs: Sequence[MeasureInput | None]) -> dict[tuple[int, str], MeasureInput]:
    return {(index, name): each for index, each in enumerate(inputs) if each is not None}


def _built(builder: Any, inputs: Mapping[tuple[int, str], MeasureInput]) -> dict[tuple[int, str], Any]:
    return dict(zip(inputs, builder.build(list(inputs.values())), strict=True)) if inputs else {}


def _measured(
    wanted: Wanted, built: Mapping[str, Any], session: Session, peak: float, rounds: int, torch: Any | None
) -> Row:
    c, ready, errors, kernels_ms = wanted.convolution, {}, {}, {}
    for name, each in built.items():
        if not hasattr(each, "function"):
            errors[name] = last_line(each.costs[1])
            continue
        try:
            ready[name] = OnPhone(session, each)
            kernels_ms[name] = ready[name].kernels_ms()
        except tvm.error.TVMError as error:
            ready.pop(name, None)
            errors[name] = last_line(error)
    if torch is not None:
        ready["cudnn"] = CudnnConvolution(torch, c)
    samples: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(rounds):
        for name, kernel in ready.items():
            samples[name].append(kernel.sample())
    times = {name: Statistics.of(each) for name, each in samples.items()}
    gflops = {name: c.flops / each.median / 1e6 for name, each in times.items()}
    talk(f"{c.name}: " + ", ".join(f"{name} {each.median:.4f} ms" for name, each in times.items()))
    return Row(
        c.name, msgspec.to_builtins(c), c.flops, wanted.count, times, kernels_ms, gflops,
        {name: speed / peak for name, speed in gflops.items()}, errors,
    )  # fmt: skip


def _print(rows: Sequence[Row], report: Mapping[str, Any]) -> None:
    click.echo(
        f"{report['gpu']}, measured peak {report['peak_gflops']:.0f} GFLOP/s; ms (p10 to p90), GFLOP/s, share of peak"
    )
    for row in rows:
        networks = " ".join(f"{model}×{count}" for model, count in row.count.items())
        click.echo(f"{row.name:32} {row.flops / 1e6:8.0f} MFLOP  {networks}")
        for name, times in row.times.items():
            spread = f"({times.p10:.4f} to {times.p90:.4f})"
            of = f", {row.times['cudnn'].median / times.median:.2f} of cuDNN" if "cudnn" in row.times else ""
            speed = f"{row.gflops[name]:9.0f} GFLOP/s {row.share_of_peak[name]:6.1%}"
            click.echo(f"    {name:9} {times.median:9.4f} {spread:20} {speed}{of}")
        for name, error in row.errors.items():
            click.echo(f"    {name:9} {error}")
    for name, value in report["summary"].items():
        click.echo(f"{name}: {value:.3f}")


def _print_libraries(networks: Sequence[Mapping[str, Any]]) -> None:
    for network in networks:
        rows = network["rows"]
        click.echo(
            f"{network['model']}: alone, in the tuner and in a library within 15 %: {network['within_15_percent']} of {len(rows)}"
            f" (widest {network['widest']:.2f}); a run {network['run_ms']:.3f} ms, its operators {network['sum_ms']:.3f} ms;"
            f" by the GPU's clock, in a run over alone {network['clock_ratio']:.2f}"
        )
        for row in rows:
            click.echo(f"    {row['name']:32} " + " ".join(f"{row[each]:9.4f}" for each in TIMES) + " ms")


if __name__ == "__main__":
    run_command(main, "gpu.py")
