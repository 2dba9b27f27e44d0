"""Settings chosen and refused on the reference phone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tvm_codl.api import Session, connect
from tvm_codl.errors import UserError
from tvm_codl.frontend.load import load_model
from tvm_codl.kernels.register import cpu_target
from tvm_codl.kernels.schedules.image import PIXEL
from tvm_codl.kernels.target import vector_lanes
from tvm_codl.measure.choices import offered
from tvm_codl.measure.interleave import RUNS
from tvm_codl.measure.settings_search import apply_settings, search_settings
from tvm_codl.plan.plan import Placement, Plan, uniform_plan
from tvm_codl.records.settings import DEFAULT, Settings, parse_settings
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared

#: Whether this machine's vectors are pixels: then the reference phone may take images.
NARROW = vector_lanes(cpu_target()) == PIXEL


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with connect(records=tmp_path_factory.mktemp("records") / "records.sqlite") as session:
        yield session


@pytest.fixture(scope="module")
def small() -> Prepared:
    return prepare(load_model("zoo:small"))


@pytest.fixture(scope="module")
def plan(small: Prepared) -> Plan:
    """The first operator on the CPU, the rest on the GPU: one wait."""
    whole = uniform_plan(small.graph, "gpu", small.name)
    first = msgspec.structs.replace(whole.operators[0], placement=Placement("cpu"))
    return msgspec.structs.replace(whole, operators=(first, *whole.operators[1:]))


def test_each_setting_that_the_phone_can_vary_is_measured(session: Session, small: Prepared, plan: Plan) -> None:
    said: list[str] = []
    chosen, ratios = search_settings(small, plan, replace(session, log=said.append))
    offers = offered(session.profile, plan)
    assert len(ratios) == sum(len(values) for values in offers.values()) > 0
    assert all(r.median > 0 and r.n >= RUNS for r in ratios)  # rounds that other work disturbed are left out
    assert chosen.operators == plan.operators
    assert chosen.settings == DEFAULT or any(r.settings == chosen.settings and r.clear for r in ratios)
    assert said[-1] == f"settings: {chosen.settings.words()}"


def test_settings_of_a_file_go_into_the_library(session: Session, small: Prepared, plan: Plan, tmp_path: Path) -> None:
    core = session.profile.cpu_cores[0]
    (tmp_path / "settings.json").write_text('{"flush_every": 3, "cpu_threads": 1, "cpu_cores": [%d]}' % core)  # noqa: UP031
    given = apply_settings(small, plan, parse_settings(str(tmp_path / "settings.json")), session)
    assert given.settings == Settings(3, 1, (core,))
    inputs = small.model.sample_inputs()
    results = []
    for each in (plan, given):
        module = session.open(session.build(small, each, tmp_path / "model.so"))
        assert module.settings == each.settings
        results.append(module.run(inputs)[0])
    assert module.cpu_cores == [[core]]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            '{"gpu_memory": "image"}', "read no images", marks=pytest.mark.skipif(NARROW, reason="vectors of four")
        ),
        ('{"gpu_float": "float16"}', "cannot compute in float16"),
        ('{"cpu_cores": [1000]}', "core 1000 is none of the CPU's"),
        ('{"cpu_threads": 500}', "500 CPU threads"),
        ('{"speed": 11}', "holds no settings"),
        ("fast", "holds no settings"),
    ],
)
def test_what_the_phone_cannot_do_is_refused(
    session: Session, small: Prepared, plan: Plan, tmp_path: Path, text: str, words: str
) -> None:
    assert not session.profile.float16
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(UserError, match=words):
        apply_settings(small, plan, parse_settings(str(tmp_path / "settings.json")), session)
    with pytest.raises(UserError, match="cannot be read"):
        parse_settings(str(tmp_path / "none.json"))


def test_a_library_is_not_built_for_a_phone_that_cannot_run_it(
    session: Session, small: Prepared, plan: Plan, tmp_path: Path
) -> None:
    half = msgspec.structs.replace(plan, settings=Settings(gpu_float="float16"))
    with pytest.raises(UserError, match="does not report cl_khr_fp16"):
        session.build(small, half, tmp_path / "half.so")
    assert not (tmp_path / "half.so").exists()
