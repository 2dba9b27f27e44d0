"""Which compiler links what is built for a target."""

from __future__ import annotations

import pytest

from tvm_codl.build import library
from tvm_codl.kernels.target import cpu_target, gpu_target


def test_a_phone_with_another_processor_gets_its_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(library, "platform", asked.append)
    monkeypatch.setattr(library, "linker", lambda where: "linker")
    here, there = cpu_target(), cpu_target(mtriple="aarch64-linux-android24")
    assert library.linker_for(here) is None and library.linker_for(gpu_target(here)) is None and not asked
    assert library.linker_for(there) == library.linker_for(gpu_target(there)) == "linker"
    assert asked == ["android-arm64"] * 2
