"""A phone and a compiler that are none: they say what a test tells them to, and note what they are asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import tvm

from tests.unit.plan.networks import Network
from tvm_codl.build.launches import Launch
from tvm_codl.build.limits import OverLimits
from tvm_codl.build.pool import Outcome, last_line
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import DeviceError
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.measure.context import Context
from tvm_codl.measure.measurer import Measurer
from tvm_codl.measure.probe import Probe
from tvm_codl.measure.settings import Settings
from tvm_codl.records.record import ErrorNo
from tvm_codl.records.store import RecordStore
from tvm_codl.runtime.about import About

PROFILE = DeviceProfile(
    "null phone", "x86_64", "none", (0,), "llvm", "none", "opencl", max_work_group=256, local_memory=1024
)


class NullToolchain:
    """No targets, and the ids that a test gives it."""

    cpu = gpu = None
    records = ()

    def __init__(self, build: str = "b1") -> None:
        self.kernel_id = self.build_id = build

    def scheduled(self) -> AbstractContextManager[None]:
        return nullcontext()


class NullPhone:
    """Takes libraries and names a time for every region.

    ``fail(region)`` may raise, or call :meth:`die`, :meth:`hang`; ``speed()`` divides every time; ``load(path)`` may
    do the same when a library is loaded, and ``sampled(min_ms)`` at each call for times; ``back()`` says whether the phone can be reached again.
    """

    def __init__(
        self,
        fail: Callable[[int], None] = lambda region: None,
        speed: Callable[[], float] = lambda: 1.0,
        load: Callable[[Path], None] = lambda path: None,
        back: Callable[[], bool] = lambda: True,
        profile: DeviceProfile = PROFILE,
        sampled: Callable[[float], None] = lambda min_ms: None,
    ) -> None:
        self.remote, self.cpu, self.profile = self, None, profile
        self.fail, self.speed, self.load, self.back = fail, speed, load, back
        self.sampled = sampled
        self.held: dict[str, Path] = {}
        self.timed: list[int] = []
        self.loaded: list[Path] = []
        self.opened, self.last_ending = 1, None
        self.lost = threading.Event()

    # What a Phone does.
    def alive(self) -> bool:
        return not self.lost.is_set()

    def drop(self) -> None:
        self.lost.set()

    def close(self) -> None:
        self.lost.set()

    def why_lost(self) -> str:
        return ""

    def reopen(self, patience_s: float, log: Callable[[str], None] = print) -> None:
        if not self.back():
            raise DeviceError("the null phone does not come back")
        self.lost = threading.Event()
        self.opened += 1

    def send(self, path: Path, name: str) -> None:
        assert path.exists()
        self.held[name] = path

    # What its remote does.
    def load_module(self, name: str) -> dict[str, Any]:
        self.load(self.held[name])
        self.loaded.append(self.held[name])
        about = msgspec.json.encode(About((), (), (), {})).decode()
        session = self.lost

        def time_region(region: int, repeat: int, min_ms: float, network_bytes: int) -> str:
            self._check(session)
            self.sampled(min_ms)
            if min_ms == 0.0:
                self.fail(region)
                self._check(session)
                self.timed.append(region)
            return json.dumps([(0.5 + region) / self.speed()] * repeat)

        return {"about": lambda: about, "create": lambda device, sharing: {"time_region": time_region}}

    def remove(self, name: str) -> None:
        del self.held[name]

    # What a test makes it do.
    def _check(self, session: threading.Event) -> None:
        if session.is_set():
            raise tvm.error.RPCError("Socket reset by peer")

    def die(self) -> None:
        self.lost.set()
        raise tvm.error.RPCError("Socket reset by peer")

    def hang(self) -> None:
        assert self.lost.wait(30.0), "nobody cut the session off"
        raise tvm.error.RPCError("Channel closes before we get needed bytes")


class NullCompiler:
    """Stands in for ``build_batch``; ``bad`` are keys of probes that do not build, ``large`` of those over a limit."""

    def __init__(self, bad: Sequence[tuple[str, str]] = ()) -> None:
        self.bad, self.large = set(bad), set()  # type: ignore[var-annotated]
        self.batches: list[int] = []
        self.launches: list[tuple[Launch, ...]] = []

    def __call__(
        self, graph: OpGraph, weights: Any, probes: Sequence[Probe], cpu: Any, gpu: Any, cache: Any
    ) -> NullCompiler:
        self.batches.append(len(probes))
        self.launches = [(Launch(512 if (p.key, p.processor) in self.large else 64, 0),) for p in probes]
        if any((p.key, p.processor) in self.bad for p in probes):
            raise RuntimeError("Traceback\ncannot lower this")
        return self

    def export(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        return path


def in_this_process(
    count: int, build: Callable[[int], Path], limit_s: Callable[[int], float]
) -> Iterator[tuple[int, Outcome]]:
    """As ``build_all``, but where the null compiler can count."""
    for index in range(count):
        assert limit_s(index) > 0
        try:
            yield index, Outcome(build(index))
        except OverLimits as error:
            yield index, Outcome(None, str(error), ErrorNo.INSTANTIATION_ERROR, error.offenders)
        except RuntimeError as error:
            yield index, Outcome(None, last_line(error), ErrorNo.COMPILE_HOST)


def network(count: int = 6) -> OpGraph:
    net = Network(1, 8, 8, 4)
    x = 0
    for index in range(count):
        x = net.conv(x, 4 + 4 * index)
    return net.graph()


def null_measurer(
    store: RecordStore,
    phone: object,
    settings: Settings,
    build: str = "b1",
    graph: OpGraph | None = None,
    log: Callable[[str], None] = lambda text: None,
) -> Measurer:
    """A measurer on a phone that is none."""
    tools: Any = NullToolchain(build)
    return Measurer(graph or network(), {}, Context(phone, store, tools, log), settings)
