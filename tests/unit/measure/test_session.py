"""A measuring session against a phone and a compiler that are none: what is asked, what is recorded, what is not."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tvm

from tests.unit.plan.networks import Network
from tvm_codl.build.library import About
from tvm_codl.errors import DeviceError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.measure import session as measuring
from tvm_codl.measure.builders import Outcome, last_line
from tvm_codl.measure.probe import Probe, whole_probes
from tvm_codl.measure.session import Session
from tvm_codl.records.store import RecordStore


class NullPhone:
    """Takes libraries and names a time for every region; ``fail`` raises instead where a test wants it to."""

    def __init__(self, fail: Callable[[int], None] = lambda region: None) -> None:
        self.remote, self.cpu = self, None
        self.fail = fail
        self.held: set[str] = set()
        self.timed: list[int] = []

    def upload(self, path: str, name: str) -> None:
        assert Path(path).exists()
        self.held.add(name)

    def load_module(self, name: str) -> dict[str, Any]:
        assert name in self.held
        about = msgspec.json.encode(About((), (), (), {})).decode()
        return {"about": lambda: about, "create": lambda device, sharing: {"time_region": self.time_region}}

    def remove(self, name: str) -> None:
        self.held.remove(name)

    def time_region(self, region: int, repeat: int, min_ms: float) -> str:
        self.fail(region)
        self.timed.append(region)
        return json.dumps([0.5 + region] * repeat)


class NullCompiler:
    """Stands in for ``build_batch``; ``bad`` are keys of probes that do not build."""

    def __init__(self, bad: Sequence[tuple[str, str]] = ()) -> None:
        self.bad, self.batches = set(bad), []  # type: ignore[var-annotated]

    def __call__(self, graph: OpGraph, weights: Any, probes: Sequence[Probe], cpu: Any, gpu: Any) -> NullCompiler:
        self.batches.append(len(probes))
        if any((p.key, p.processor) in self.bad for p in probes):
            raise RuntimeError("Traceback\ncannot lower this")
        return self

    def export(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        return path


@pytest.fixture()
def store(tmp_path: Path) -> Iterator[RecordStore]:
    with RecordStore(tmp_path / "records.sqlite") as opened:
        yield opened


@pytest.fixture()
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NullCompiler:
    made = NullCompiler()
    monkeypatch.setattr(measuring, "build_batch", made)
    monkeypatch.setattr(measuring, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(measuring, "build_all", in_this_process)
    monkeypatch.setattr(measuring.os, "sched_getaffinity", lambda pid: {0})  # how many batches a few probes make
    return made


def in_this_process(count: int, build: Callable[[int], Path], *rest: object) -> Iterator[tuple[int, Outcome]]:
    """As ``build_all``, but where the null compiler can count."""
    for index in range(count):
        try:
            yield index, Outcome(build(index), "")
        except RuntimeError as error:
            yield index, Outcome(None, last_line(error))


def network(count: int = 6) -> OpGraph:
    net = Network(1, 8, 8, 4)
    x = 0
    for index in range(count):
        x = net.conv(x, 4 + 4 * index)
    return net.graph()


def opened(store: RecordStore, phone: NullPhone, build: str = "b1", graph: OpGraph | None = None) -> Session:
    return Session(
        graph or network(), {}, None, None, phone, "null phone", build, store, lambda text: None, contextlib.nullcontext
    )  # type: ignore[arg-type]


def test_every_probe_becomes_a_record_of_its_own_region(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone()
    session = opened(store, phone)
    probes = whole_probes(session.graph)
    records = session.measure(probes)
    assert [(r.workload, r.processor) for r in records] == [(p.key, p.processor) for p in probes]
    assert [r.median_ms for r in records] == [0.5 + i for i in range(len(probes))]
    assert all((r.device, r.build, r.ok) == ("null phone", "b1", True) for r in records)
    assert list(store) == records
    assert not phone.held, "libraries stay on the phone"


def test_what_is_known_is_not_measured_again(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone()
    probes = whole_probes(network())
    opened(store, phone).measure(probes[:4])
    phone.timed.clear()
    records = opened(store, phone).measure(probes)
    assert len(phone.timed) == len(probes) - 4
    assert {(r.workload, r.processor) for r in records} == {(p.key, p.processor) for p in probes}
    phone.timed.clear()
    compiler.batches.clear()
    opened(store, phone).measure(probes)
    assert phone.timed == compiler.batches == []
    assert len(store) == len(probes)


def test_another_build_or_device_is_measured_anew(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone()
    probes = whole_probes(network(1))
    opened(store, phone).measure(probes)
    opened(store, phone, build="b2").measure(probes)
    assert len(store) == 2 * len(probes)


def test_a_build_that_fails_is_halved_until_it_stands_alone(store: RecordStore, compiler: NullCompiler) -> None:
    phone = NullPhone()
    session = opened(store, phone)
    probes = whole_probes(session.graph)
    bad = probes[5]
    compiler.bad = {(bad.key, bad.processor)}
    records = {(r.workload, r.processor): r for r in session.measure(probes)}
    assert len(records) == len(probes)
    failed = records.pop((bad.key, bad.processor))
    assert (failed.ok, failed.times_ms) == (False, ())
    assert failed.error == "RuntimeError: cannot lower this"
    assert failed.median_ms == float("inf")
    assert all(record.ok for record in records.values())
    # Known to fail: it is not built again.
    compiler.batches.clear()
    session.measure(probes)
    assert compiler.batches == []


def test_a_kernel_that_fails_on_the_phone_is_an_error_record(store: RecordStore, compiler: NullCompiler) -> None:
    def fail(region: int) -> None:
        if region == 2:
            raise tvm.error.TVMError("Stack trace:\nOpenCL error -54: work-group size")

    session = opened(store, NullPhone(fail))
    records = session.measure(whole_probes(session.graph))
    assert [r.ok for r in records] == [i != 2 for i in range(len(records))]
    assert "work-group size" in records[2].error


def test_a_phone_that_goes_away_loses_only_what_was_not_finished(store: RecordStore, compiler: NullCompiler) -> None:
    def fail(region: int) -> None:
        if region == 3:
            raise tvm.error.RPCError("Socket reset by peer")

    probes = whole_probes(network())
    with pytest.raises(DeviceError, match="went away"):
        opened(store, NullPhone(fail)).measure(probes)
    assert len(store) == 3
    phone = NullPhone()
    assert len(opened(store, phone).measure(probes)) == len(probes)
    assert len(phone.timed) == len(probes) - 3


def test_batches_are_bounded(store: RecordStore, compiler: NullCompiler) -> None:
    session = opened(store, NullPhone(), graph=network(60))
    probes = whole_probes(session.graph)
    assert len(session.measure(probes)) == len(probes) == 120
    assert max(compiler.batches) <= measuring.BATCH
    assert sum(compiler.batches) == len(probes)
