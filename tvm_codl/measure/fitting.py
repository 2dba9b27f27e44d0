"""From records to costs: a fitted cost model, and the planning problem of a network by it.  Imports no TVM."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.model import CostModel, samples_of
from tvm_codl.cost.transfers import TransferCost
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import UserError
from tvm_codl.kernels.reuse import load_tunings
from tvm_codl.paths import cache_dir
from tvm_codl.plan.measured import calibrate_network, fit_correction
from tvm_codl.plan.problem import Problem
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import Record
from tvm_codl.relay.prepared import Prepared
from tvm_codl.sources import code_digest

#: Each has a megabyte or two.
KEPT_MODELS = 8


def pose_problem(
    prepared: Prepared, model: CostModel, sharing: TransferCost, device: str, runs: Sequence[PlanRecord]
) -> Problem:
    """The planning problem of a network on a device.

    ``runs`` are plans that ran there with today's kernels; predictions are corrected by what they took.  Pieces that were
    not measured are priced with caution.
    """
    graph = prepared.graph
    factors = fit_correction(runs, graph), calibrate_network(runs, graph)
    return Problem(graph, prepared.axes, model.cautious(), sharing, prepared.name, device, *factors)


def model_fitter(
    profile: DeviceProfile, kernel_id: str, tuning_records: Sequence[Path]
) -> Callable[[Iterable[Record]], CostModel]:
    """A function that fits a cost model to records of one phone and its tuned kernels."""
    facts = DeviceFacts.of(msgspec.to_builtins(profile))
    tunings = load_tunings(tuning_records)
    provenance = {"device": profile.name, "build": kernel_id}
    return lambda records: CostModel.fit(samples_of(records, facts), provenance, facts, tunings)


def fit_once(
    records: Sequence[Record], profile: DeviceProfile, kernel_id: str, tuning_records: Sequence[Path]
) -> CostModel:
    """The model that :func:`model_fitter`'s function fits.  It is kept, by all that it is fitted to: fitting takes seconds."""
    digest = hashlib.sha256(msgspec.msgpack.encode([records, profile, kernel_id]))
    digest.update(code_digest("cost", "graph", "kernels", "records"))
    folder = cache_dir() / "models"
    kept = folder / f"{digest.hexdigest()[:32]}.json"
    with contextlib.suppress(UserError):
        return CostModel.load(kept)
    model = model_fitter(profile, kernel_id, tuning_records)(records)
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)[: -KEPT_MODELS + 1]:
        old.unlink(missing_ok=True)
    partial = folder / f"{os.getpid()}.partial"
    model.save(partial)
    os.replace(partial, kept)
    return model
