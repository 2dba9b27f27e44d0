"""Exports a network for a Java program: ``python tutorials/java/export.py -o exported``.

Writes ``network.so``, an input (``input.bin``), onnxruntime's answer to it (``expected.bin``; both are little-endian 32-bit
floats) and ``about.txt``: the input's name and shape, and the output's shape.
"""

from pathlib import Path

import click
import numpy as np
import tvm
from tvm import relay

import tvm_codl as codl
from tvm_codl.cli.main import main
from tvm_codl.cli.output import talk
from tvm_codl.frontend.reference import reference_outputs


@click.command()
@click.argument("model", default="zoo:small")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("exported"), show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of the input's numbers.")
def export(model: str, output: Path, seed: int) -> None:
    """Export MODEL's library for this machine, with an input and the answer that is right for it."""
    network = codl.load_model(model)
    ((name, shape, _),) = network.inputs
    output.mkdir(parents=True, exist_ok=True)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(network.module, target="llvm", mod_name="default")
    library.export_library(str(output / "network.so"))
    given = np.random.default_rng(seed).standard_normal(shape).astype("<f4")
    answer = reference_outputs(network, {name: given})[0].astype("<f4")
    given.tofile(output / "input.bin")
    answer.tofile(output / "expected.bin")
    lines = [name, " ".join(map(str, shape)), " ".join(map(str, answer.shape))]
    (output / "about.txt").write_text("\n".join(lines) + "\n")
    talk(f"{output}: {model}, {name} {shape} to {answer.shape}")


if __name__ == "__main__":
    main(export, "export.py")
