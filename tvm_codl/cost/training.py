"""Training: from a record store to a cost model, with its own error beside it."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec

from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.evaluation.held_out import LEARNED, hold_out
from tvm_codl.cost.model import CostModel
from tvm_codl.cost.samples import Sample, newest_build, samples_of
from tvm_codl.errors import UserError
from tvm_codl.kernels.reuse import Tunings
from tvm_codl.records.record import Record
from tvm_codl.records.store import RecordStore
from tvm_codl.records.workload import Workload

Log = Callable[[str], None]


class Chosen(msgspec.Struct, frozen=True):
    """The records of ``device`` (its newest build unless another was named) and the samples of all devices that their
    profiles tell apart."""

    device: str
    build: str
    facts: DeviceFacts
    records: tuple[Record, ...]
    samples: tuple[Sample, ...]
    others: tuple[str, ...]


def choose(
    path: Path, device: str = "", build: str = "", operators: Collection[str] | None = None, log: Log = lambda _: None
) -> Chosen:
    """Records of a store.  ``operators``: keys of the whole operators that are wanted, with their pieces; None for all.

    The device is the one measured last unless named.  Raises :class:`UserError` for a store that does not exist or holds
    no such record.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist", "", "tvm-codl measure MODEL")
    with RecordStore(path) as store:
        records = [r for r in store if r.mode == "alone"]
        profiles = {digest: _facts(text) for digest, text in store.profiles().items()}
    if operators is not None:
        records = [r for r in records if (w := Workload.from_key(r.workload)) and (w.whole or w).key in operators]
    if not records:
        raise UserError(f"{path} holds no measurement to learn from", "", "tvm-codl measure MODEL")
    name = device or max(records, key=lambda r: r.when).device
    names = sorted({r.device for r in records})
    if name not in names:
        raise UserError(f"{path} holds no measurement of {name}", f"devices: {', '.join(names)}", "--device DEVICE")
    own = [r for r in records if r.device == name and r.build == build] if build else []
    if build and not own:
        builds = sorted({r.build for r in records if r.device == name})
        raise UserError(f"no record of {name} has the build {build}", f"builds: {', '.join(builds)}")
    own = own or newest_build([r for r in records if r.device == name])
    facts = _profile_of(own, profiles)
    samples, others = samples_of(own, facts), []
    for other in names:
        rest = newest_build([r for r in records if r.device == other]) if other != name else []
        theirs = _profile_of(rest, profiles)
        if rest and theirs not in (facts, DeviceFacts()):
            samples = samples_of(rest, theirs) + samples
            others.append(other)
        elif rest:
            log(f"{other}: {len(rest)} records left out, as no profile tells it from {name}")
    older = sum(r.device == name for r in records) - len(own)
    if older:
        log(f"{older} records of other builds of {name} are left out")
    return Chosen(name, own[0].build, facts, tuple(own), tuple(samples), tuple(others))


def train(
    chosen: Chosen, store: Path, tunings: Tunings | None = None, check: bool = True, log: Log = lambda _: None
) -> CostModel:
    """With ``check``, the model's provenance holds its error on held-out shapes."""
    provenance: dict[str, Any] = {
        "device": chosen.device,
        "build": chosen.build,
        "other_devices": list(chosen.others),
        "records": {
            "count": len(chosen.records),
            "failed": sum(not r.ok for r in chosen.records),
            "store": store.name,
            "newest": max(r.when for r in chosen.records),
        },
        "versions": {name: _version(name) for name in ("tvm_codl", "xgboost-cpu", "numpy", "scipy")},
    }
    if check:
        log(f"learning from {len(chosen.samples)} workloads, with a fifth of the shapes held out five times")
        results = hold_out(chosen.samples, chosen.facts, tunings, chosen.device).results
        provenance["error"] = [msgspec.to_builtins(r) for r in results if r.learner == LEARNED]
    return CostModel.fit(chosen.samples, provenance, chosen.facts, tunings)


def _profile_of(records: Iterable[Record], profiles: dict[str, DeviceFacts]) -> DeviceFacts:
    """The newest profile that the records name."""
    facts = [profiles[r.profile] for r in records if r.profile in profiles]
    return facts[-1] if facts else DeviceFacts()


def _facts(text: str) -> DeviceFacts:
    value = json.loads(text)
    return DeviceFacts.of(value) if isinstance(value, dict) else DeviceFacts()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
