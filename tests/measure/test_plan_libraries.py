"""The libraries of plans are told of one by one, while others are being built; the builder is a null one."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.plan.networks import Network
from tests.unit.plan.test_search import legal
from tvm_codl.measure import plan_libraries as module
from tvm_codl.plan.plan import Plan, uniform_plan
from tvm_codl.relay.prepared import Prepared

TOOLS: Any = SimpleNamespace(build_id="here")


def network() -> Prepared:
    made = Network(1, 8, 8, 16)
    made.conv(0, 8)
    graph = made.graph()
    return Prepared(SimpleNamespace(name="net", outputs=("y",)), graph, {}, None, legal(graph))  # type: ignore[arg-type]


@pytest.fixture
def null_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes a byte; a library of the GPU alone waits until ``told`` is there."""
    told = tmp_path / "told"

    def build(prepared: Prepared, plan: Plan, tools: Any, out: Path | None, *_: Any, **__: Any) -> Path:
        until = time.monotonic() + 60
        while plan.operators[0].placement.on == "gpu" and not told.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        if out is None:
            return tmp_path
        out.parent.mkdir(exist_ok=True)
        out.write_bytes(b"1")
        return out

    monkeypatch.setattr(module, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(module, "_build", build)
    return told


@pytest.mark.parametrize("there", [False, True])
def test_a_library_is_ready_while_another_is_built(there: bool, null_builder: Path) -> None:
    """One that was there before as well: the other one's build does not end before it."""
    prepared = network()
    plans = {on: uniform_plan(prepared.graph, on, "net", "null phone") for on in ("cpu", "gpu")}  # type: ignore[arg-type]
    if there:
        module.libraries_for(prepared, {"cpu": plans["cpu"]}, TOOLS, lambda _: None)
    ready: list[tuple[str, bool]] = []

    def note(name: str, path: Path) -> None:
        ready.append((name, path.exists()))
        null_builder.touch()

    paths = module.libraries_for(prepared, {**plans, "same": plans["cpu"]}, TOOLS, lambda _: None, note)
    assert sorted(ready[:2]) == [("cpu", True), ("same", True)] and ready[2:] == [("gpu", True)]
    assert paths["cpu"] == paths["same"] != paths["gpu"]
    ready.clear()
    module.libraries_for(prepared, plans, TOOLS, lambda _: None, note)
    assert sorted(ready) == [("cpu", True), ("gpu", True)]
