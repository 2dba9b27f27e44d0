"""The programs beside which ``bench --peers`` runs a network."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import numpy as np
import pytest

from tvm_codl.errors import UserError
from tvm_codl.frontend import zoo
from tvm_codl.measure.interleave import RUNS, WARM_MS
from tvm_codl.measure.peers import open_peers
from tvm_codl.relay.model import LoadedModel


def model_of(name: str) -> LoadedModel:
    """What a peer needs of a model: its file."""
    return SimpleNamespace(name=name, path=zoo.entry(name).path())  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("name", "peer", "inputs"),
    [
        ("small", "onnxruntime", {"input": np.zeros((1, 3, 32, 32), "float32")}),
        ("face_detection", "LiteRT", {"input": np.zeros((1, 128, 128, 3), "float32")}),
    ],
)
def test_a_file_runs_where_its_user_would_run_it(name: str, peer: str, inputs: dict[str, np.ndarray]) -> None:
    peers = open_peers(model_of(name), inputs)
    turn = next(turn for found, turn in peers.items() if found.startswith(peer))()
    assert len(turn.ms) == len(turn.waited_ms) > RUNS
    assert sum(turn.ms[:-RUNS]) >= WARM_MS
    assert min(turn.ms) > 0 and min(turn.waited_ms) >= 0


def test_a_network_that_is_no_file_has_no_peers() -> None:
    with pytest.raises(UserError, match="net is no file"):
        open_peers(SimpleNamespace(name="net", path=None), {})  # type: ignore[arg-type]


def test_a_peer_that_does_not_take_a_network_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Core:
        def compile_model(self, path: str, *_: object) -> None:
            raise RuntimeError(f"no conversion rule for QLinearAdd of {path}")

    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(Core=Core, __spec__=ModuleSpec("openvino", None)))
    said: list[str] = []
    peers = open_peers(model_of("small"), {"input": np.zeros((1, 3, 32, 32), "float32")}, said.append)
    assert [name.split()[0] for name in peers] == ["onnxruntime"]
    assert len(said) == 1 and "OpenVINO does not run small" in said[0] and "QLinearAdd" in said[0]
