"""Kernels as benchmarks/isa.py hands them to an offline compiler."""

from __future__ import annotations

import importlib
from math import prod
from pathlib import Path

import pytest

from tvm_codl.frontend.load import load_model
from tvm_codl.kernels.gpu import usual
from tvm_codl.relay.pipeline import prepare


def test_each_kernel_has_its_source_and_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    kernels = importlib.import_module("isa_kernels").kernels_of(prepare(load_model("zoo:small")), usual("mobile"))
    assert all(kernel.source.count(f"void tvmgen_codl_{kernel.name}(") == 1 for kernel in kernels)
    assert all(min(16, kernel.items) <= prod(kernel.group) <= kernel.items for kernel in kernels)
    heaviest = kernels[0]
    assert "conv2d" in heaviest.name and heaviest.flops > 1e6
    assert len({kernel.name for kernel in kernels}) == len(kernels)
