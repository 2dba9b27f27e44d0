"""A matrix product on the GPU of a phone that is somewhere else: built here, sent, tuned, timed and checked there."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import tvm
from tvm import autotvm, te

from tvm_codl.build.library import linker_for
from tvm_codl.cli.main import main
from tvm_codl.cli.options import PhoneChoice, phone_options
from tvm_codl.cli.output import talk
from tvm_codl.errors import CheckFailed
from tvm_codl.kernels.tuner.builder import PASS_CONFIG, BatchBuilder
from tvm_codl.kernels.tuner.runner import BatchRunner

#: Rounding: float32 sums of up to some thousand products, in another order than numpy's.
ALLOWED = 1e-4


@autotvm.template("tutorial.gemm")
def product(size: int) -> Any:
    """C = A B, all size x size: groups of work-items, each of which keeps a tile of C in registers."""
    a, b = te.placeholder((size, size), name="a"), te.placeholder((size, size), name="b")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    schedule = te.create_schedule(c.op)
    tile = schedule.cache_write(c, "local")
    rows, columns = schedule[c].op.axis

    config = autotvm.get_config()
    config.define_split("rows", rows, num_outputs=3, filter=lambda s: s.size[1] <= 16 and s.size[2] <= 8)
    config.define_split(
        "columns", columns, num_outputs=3, filter=lambda s: s.size[1] <= 16 and s.size[2] in (1, 2, 4, 8, 16)
    )
    config.define_split("sum", k, num_outputs=2, filter=lambda s: s.size[1] <= 8)
    if config.is_fallback:
        config["rows"] = config["columns"] = autotvm.task.space.SplitEntity([-1, 8, 1])
        config["sum"] = autotvm.task.space.SplitEntity([-1, 1])

    group_i, item_i, row = config["rows"].apply(schedule, c, rows)
    group_j, item_j, column = config["columns"].apply(schedule, c, columns)
    schedule[c].reorder(group_i, group_j, item_i, item_j, row, column)
    for name, axis in (
        ("blockIdx.y", group_i),
        ("blockIdx.x", group_j),
        ("threadIdx.y", item_i),
        ("threadIdx.x", item_j),
    ):
        schedule[c].bind(axis, te.thread_axis(name))
    schedule[c].vectorize(column)

    schedule[tile].compute_at(schedule[c], item_j)
    row, column = schedule[tile].op.axis
    outer, inner = config["sum"].apply(schedule, tile, schedule[tile].op.reduce_axis[0])
    schedule[tile].reorder(outer, inner, row, column)
    schedule[tile].unroll(inner)
    schedule[tile].unroll(row)
    schedule[tile].vectorize(column)
    config.add_flop(2 * size**3)
    return schedule, [a, b, c]


def run(phone: Any, target: tvm.target.Target, size: int, name: str, output: Path) -> float:
    """Builds the product, sends it, runs it on the phone's GPU and checks it.  Returns milliseconds."""
    with target, tvm.transform.PassContext(opt_level=3, config=PASS_CONFIG):
        schedule, arguments = product(size)
        built = tvm.build(schedule, arguments, target=target, name="gemm")
    path = output / f"{name}.so"
    built.export_library(str(path), fcompile=linker_for(target))

    phone.remote.upload(str(path))
    gemm = phone.remote.load_module(path.name)
    random = np.random.default_rng(0)
    here = [random.random((size, size), np.float32) for _ in "ab"]
    a, b = (tvm.nd.array(array, phone.gpu) for array in here)
    c = tvm.nd.empty((size, size), "float32", phone.gpu)
    gemm(a, b, c)
    check(c.numpy(), here[0] @ here[1], name)
    times = gemm.time_evaluator("gemm", phone.gpu, number=3, repeat=5)(a, b, c)
    return 1e3 * float(np.median(times.results))


def check(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    error = float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))
    if not error <= ALLOWED:
        raise CheckFailed(f"{name} is not numpy's product", f"relative error {error:.2e}, {ALLOWED:g} is allowed")
    talk(f"{name}: agrees with numpy, relative error {error:.1e}")


def tune(phone: Any, target: tvm.target.Target, size: int, trials: int, log: Path) -> None:
    """Tries configurations on the phone; each is a line of ``log``."""
    task = autotvm.task.create("tutorial.gemm", (size,), target)
    # AutoTVM's own runner asks a tracker for the phone; this one uses the session that is open, through a proxy too.
    option = autotvm.measure_option(
        builder=BatchBuilder(fcompile=linker_for(target)), runner=BatchRunner(phone, number=2, repeat=3)
    )
    tuner = autotvm.tuner.GATuner(task, pop_size=16)
    with contextlib.redirect_stdout(sys.stderr):  # AutoTVM's line of progress is talk; its last word comes with its end
        callbacks = [autotvm.callback.progress_bar(trials, prefix="gemm"), autotvm.callback.log_to_file(str(log))]
        tuner.tune(trials, measure_option=option, callbacks=callbacks)
        callbacks.clear()


@click.command()
@phone_options
@click.option(
    "--size", type=click.IntRange(8), default=1024, show_default=True, help="Rows and columns of the matrices."
)
@click.option("--trials", type=click.IntRange(1), default=48, show_default=True, help="Configurations to try.")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), default=".", show_default=True,
    help="Folder of the results.",
)  # fmt: skip
def gemm(phone: PhoneChoice, size: int, trials: int, output: Path) -> None:
    """Run a matrix product on a phone's GPU, tune it there, and write gemm.log, untuned.so and tuned.so."""
    output.mkdir(parents=True, exist_ok=True)
    log = output / "gemm.log"
    autotvm.GLOBAL_SCOPE.silent = True  # of kernels without records: the first is meant to have none
    with phone.connect() as session:
        talk(f"{session.device}: {session.profile.gpu_name}")
        target = session.tools.gpu
        before = run(session.phone, target, size, "untuned", output)
        tune(session.phone, target, size, trials, log)
        with autotvm.apply_history_best(str(log)):
            after = run(session.phone, target, size, "tuned", output)
    for name, ms in (("untuned", before), ("tuned", after)):
        click.echo(f"{name}: {ms:.3f} ms, {2 * size**3 / ms / 1e6:.1f} GFLOP/s")


if __name__ == "__main__":
    main(gemm, "gemm.py")
