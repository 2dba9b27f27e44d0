"""What an imported network answers on this computer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tvm_codl.build.pool import build_all
from tvm_codl.errors import UserError
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.register import cpu_target
from tvm_codl.relay.pipeline import CONFIG

Values = Mapping[str, np.ndarray]

#: It runs once: to make it faster takes longer, in Relay as in LLVM.
SKIPPED = ["SimplifyExpr", "SimplifyExprPostAlterOp", "FlattenAtrousConv"]


def host_outputs(
    module: tvm.IRModule, inputs: Values, meanwhile: Callable[[], object] | None = None
) -> list[np.ndarray]:
    """What an imported module computes on this computer's CPU, built and run in a process of its own, beside ``meanwhile``.

    Raises :class:`UserError` where it does not compile.
    """
    with tempfile.TemporaryDirectory(prefix="tvm-codl-check-") as folder:

        def write(_: int) -> Path:
            with scheduled(()), tvm.transform.PassContext(opt_level=1, disabled_pass=SKIPPED, config=CONFIG):
                library = relay.build(module, tvm.target.Target(f"{cpu_target()} -opt-level=0"))
            executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
            executor.set_input(**inputs)
            executor.run()
            path = Path(folder) / "outputs.npz"
            np.savez(path, *(executor.get_output(i).numpy() for i in range(executor.get_num_outputs())))
            return path

        _, outcome = next(build_all(1, write, meanwhile=meanwhile))
        if outcome.path is None:
            raise UserError("the imported network does not compile here", outcome.error, "use --no-check")
        with np.load(outcome.path) as file:
            return [file[key] for key in file.files]
