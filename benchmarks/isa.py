"""Our kernels in phones' instruction sets: ``python benchmarks/isa.py MODEL... --gpu mali-g78 --compiler FOLDER [--json]``.

Builds each network for a phone with that GPU, compiles every kernel with an offline compiler (``docker/install/isa.sh``
builds it) and prints, per kernel and weighted by FLOPs: spills, occupancy, the share of multiply-adds in the hottest loop,
its loads beside 128 of them, what bounds it, and the work-group.  ``--against FILE`` prints an earlier ``--json`` beside it.

It ranks variants: the instruction sets are real, the compiler is Mesa's, and caches and memory are not in it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import msgspec
from isa_compiler import Compiler, Kernel, weighted
from isa_kernels import kernels_of

from tvm_codl.cli.main import main as run_command
from tvm_codl.cli.output import print_json
from tvm_codl.errors import UserError
from tvm_codl.frontend.load import load_model
from tvm_codl.kernels.gpu import Gpu
from tvm_codl.relay.pipeline import Prepared, prepare

PROCESSES = 2
#: The longest side of an image that Adreno's OpenCL allows.
IMAGE_SIDE = 16384
_GPU = re.compile(r"(mali-g|adreno-)\d+$")
_SHOWN = ("spills", "occupancy", "fma_share", "loads_per_128_fma", "bound")


def gpu_of(name: str) -> Gpu:
    """What our kernels know of the GPU that the offline compiler calls ``name``.  Raises :class:`UserError`."""
    if not _GPU.match(name):
        raise UserError(f"no GPU {name!r}", "it is no Mali or Adreno", "--gpu mali-g78, --gpu adreno-730")
    return Gpu.of({"gpu_name": name.replace("mali-g", "Mali-G").replace("adreno-", "Adreno (TM) ")}, 4)


def enough(kernel: Kernel, gpu: Gpu) -> bool:
    """Whether its groups are at least a warp, or as many work-items as the problem has."""
    x, y, z = kernel.group
    return x * y * z >= min(gpu.warp, kernel.items)


def judge(kernels: Sequence[Kernel], name: str, compiler: Compiler) -> dict[str, Any]:
    """The JSON of one GPU."""
    gpu = gpu_of(name)
    with ThreadPoolExecutor(PROCESSES) as pool:
        judged = list(pool.map(lambda kernel: compiler.judge(kernel, name), kernels))
    whole = [enough(kernel, gpu) for kernel in kernels]
    return {"gpu": name, "kernels": [msgspec.to_builtins(k) for k in judged], "weighted": weighted(judged, whole)}


def emitted(networks: dict[str, Prepared], names: Iterable[str], dtype: str, images: bool) -> dict[str, list[Kernel]]:
    """The kernels of all networks by GPU; GPUs that our kernels cannot tell apart share them."""
    by_kind: dict[Gpu, list[Kernel]] = {}
    result = {}
    for name in names:
        gpu = gpu_of(name)
        if gpu not in by_kind:
            side = IMAGE_SIDE if images and gpu.kind == "adreno" else 0
            found = [
                msgspec.structs.replace(kernel, name=f"{model}/{kernel.name}")
                for model, prepared in networks.items()
                for kernel in kernels_of(prepared, gpu, dtype, side)
            ]
            by_kind[gpu] = sorted(found, key=lambda kernel: -kernel.flops)
        result[name] = by_kind[gpu]
    return result


def chosen(kernels: Sequence[Kernel], only: str, least: float) -> list[Kernel]:
    """Those whose name has ``only``, and at least this share of their network's FLOPs."""
    totals: Counter[str] = Counter()
    for kernel in kernels:
        totals[kernel.name.split("/")[0]] += kernel.flops
    return [k for k in kernels if re.search(only, k.name) and k.flops >= least * totals[k.name.split("/")[0]]]


def show(result: dict[str, Any], before: dict[str, Any] | None) -> None:
    """A table of one GPU; with ``before``, each figure as before → now."""
    earlier = {k["name"]: k for k in before["kernels"]} if before else {}
    click.echo(f"{result['gpu']}\n{'GFLOP':>7} {'group':>9} " + " ".join(f"{name:>18}" for name in _SHOWN) + "  kernel")
    for k in result["kernels"]:
        cells = " ".join(f"{_cell(k, earlier.get(k['name']), name):>18}" for name in _SHOWN)
        click.echo(f"{k['flops'] / 1e9:7.3f} {'×'.join(map(str, k['group'])):>9} {cells}  {k['name']}")
    total = result["weighted"]
    for name, value in total.items():
        was = f"{before['weighted'][name]} → " if before else ""
        click.echo(f"  weighted {name}: {was}{value}")


def _cell(now: dict[str, Any], before: dict[str, Any] | None, name: str) -> str:
    text = "-" if now[name] is None else str(now[name])
    if before is None or before[name] == now[name]:
        return text
    return f"{'-' if before[name] is None else before[name]}→{text}"


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option("--gpu", "gpus", multiple=True, default=("mali-g78",), show_default=True, help="As stats.sh names it.")
@click.option("--compiler", type=click.Path(path_type=Path), required=True, help="The folder of stats.sh.")
@click.option("--only", default="", metavar="REGEX", help="Kernels whose name has this.")
@click.option("--least", default=0.0, help="Kernels of at least this share of a network's FLOPs.")
@click.option("--dtype", type=click.Choice(["float32", "float16"]), default="float32")
@click.option("--images", is_flag=True, help="Weights in images, on Adreno.")
@click.option("--against", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="An earlier --json.")
@click.option("--json", "as_json", is_flag=True)
def main(
    models: tuple[str, ...],
    gpus: tuple[str, ...],
    compiler: Path,
    only: str,
    least: float,
    dtype: str,
    images: bool,
    against: Path | None,
    as_json: bool,
) -> None:
    """MODEL is one of the zoo, with or without ``zoo:``, or an ONNX file.  JSON: an object for one GPU, else a list."""
    offline = Compiler(compiler)
    for name in gpus:
        gpu_of(name)
    sources = [m if ":" in m or Path(m).exists() else f"zoo:{m}" for m in models]
    networks = {Path(m.removeprefix("zoo:")).stem: prepare(load_model(m)) for m in sources}
    found = emitted(networks, gpus, dtype, images)
    found = {name: chosen(kernels, only, least) for name, kernels in found.items()}
    results = [judge(found[name], name, offline) for name in gpus]
    earlier = json.loads(against.read_text("utf-8")) if against else []
    before = {r["gpu"]: r for r in ([earlier] if isinstance(earlier, dict) else earlier)}
    if as_json:
        print_json(results[0] if len(results) == 1 else results)
        return
    for result in results:
        show(result, before.get(result["gpu"]))


if __name__ == "__main__":
    run_command(main, "isa.py")
