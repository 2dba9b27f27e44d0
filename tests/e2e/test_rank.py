"""Ranking searched variants of one network on the reference phone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_codl.frontend import zoo

WIDTHS = (0.5, 0.75, 1.0, 1.5, 2.0)


@pytest.mark.slow
def test_variants_of_a_network_come_in_the_order_that_the_phone_measures(tmp_path: Path) -> None:
    """Widths whose channels fill whole vectors and whose work differs by three quarters or more."""
    files = []
    for width in reversed(WIDTHS):
        files.append(tmp_path / f"mobilenet-{width}.onnx")
        files[-1].write_bytes(zoo.mobilenet.build_v1(96, width, 100).SerializeToString())
    options = ["--top", "4", "--budget", "5", "--repeat", "6", "--records", str(tmp_path / "records.sqlite"), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tvm_codl", "rank", *(path.name for path in files), *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=3600, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["seeded"] > 0  # the store was empty
    assert [p["model"] for p in found["predicted"]] == [f"mobilenet-{width}.onnx" for width in WIDTHS]
    assert len(found["measured"]) == found["agreement"]["n"] == 4
    assert {m["model"] for m in found["measured"]} == {p["model"] for p in found["predicted"][:4]}
    assert all(m["max_rel_err"] <= 1e-3 for m in found["measured"])
    assert found["agreement"]["kendall"] >= 2 / 3  # at most one pair of six the wrong way round
    again = subprocess.run(
        [sys.executable, "-m", "tvm_codl", "rank", *(path.name for path in files), "--top", "0", *options[6:]],
        cwd=tmp_path, capture_output=True, text=True, timeout=3600, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert again.returncode == 0, again.stderr[-4000:]
    second = json.loads(again.stdout)
    assert (second["seeded"], second["measured"], second["agreement"]) == (0, [], None)
    assert second["records"] > found["records"]
