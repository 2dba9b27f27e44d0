"""Checked import: an imported network's answer, computed on this computer, beside the reference's.

It runs before anything is measured, and once for each file: what was right is remembered by content.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable

import numpy as np
import tvm

from tvm_codl.errors import CheckFailed
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.measure.answers import TOLERANCE, answer_errors
from tvm_codl.measure.context import Log
from tvm_codl.measure.host_outputs import Values, host_outputs
from tvm_codl.measure.node_errors import node_errors
from tvm_codl.paths import cache_dir
from tvm_codl.relay.model import LoadedModel
from tvm_codl.sources import code_digest


def check_import(
    model: LoadedModel,
    inputs: Values | None = None,
    log: Log = lambda _: None,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Compares the network's answer with the reference's, on its sample inputs or on ``inputs``.

    Most of it is another process's work; ``meanwhile`` runs in this one beside it, if there is anything to check.

    Raises :class:`CheckFailed` where they differ, with the first node of the file whose output does, and
    :class:`UserError` where the network does not compile here.
    """
    values = inputs or model.sample_inputs()
    mark = cache_dir() / "checked" / _digest(model, inputs or {}) if model.path else None
    if mark and mark.exists():
        return
    log(f"checking the import of {model.name}")
    wanted = functools.cache(lambda: reference_outputs(model, inputs) if inputs else model.sample_answers)
    found = host_outputs(model.module, values, lambda: (wanted(), meanwhile()))
    error = answer_errors(found, wanted(), model.quanta)[1]
    if not error <= TOLERANCE:
        raise CheckFailed(
            f"{model.name} is imported wrongly: its answer differs from the reference's by {error:.2e}",
            _parting(model, values),
            "export the model without that operator, or use --no-check",
        )
    if mark:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _parting(model: LoadedModel, values: Values) -> str:
    """Where the imported network and its file part, in words."""
    if model.path is None:
        return "the operator is not known: it came from no file"
    for node in node_errors(model, values):
        if not node.max_rel_err <= TOLERANCE:
            return f"{node.operator} {node.node!r} is the first whose output {node.output!r} differs, by {node.max_rel_err:.2e}"
    return "each operator by itself agrees: simplifying the network changed it"


def _digest(model: LoadedModel, inputs: Values) -> str:
    """Of all that decides: the file, the shapes, the inputs given, and what imports it."""
    digest = hashlib.sha256(f"{tvm.__version__}|{model.inputs}".encode())
    assert model.path is not None
    digest.update(model.path.read_bytes())
    for name in sorted(inputs):
        digest.update(name.encode() + np.ascontiguousarray(inputs[name]).tobytes())
    digest.update(code_digest("frontend", "relay"))
    return digest.hexdigest()[:32]
