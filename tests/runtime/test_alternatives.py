"""A library of several plans: each gives the answer, what is alike is held once, and what is damaged is refused."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from tests.phone.servers import wait_until
from tests.runtime.adaptive_networks import PLANS, library
from tests.runtime.partitions import answer, convolutions
from tests.runtime.test_program import PROGRAM
from tvm_codl.build.library import Library, build
from tvm_codl.errors import UserError
from tvm_codl.records.settings import Settings
from tvm_codl.report.timeline import read_events
from tvm_codl.runtime.comodule import CoModule

pytestmark = pytest.mark.usefixtures("opencl")


@pytest.fixture(scope="module")
def built(opencl: None) -> Library:
    return library()


@pytest.fixture(scope="module")
def loaded(built: Library, tmp_path_factory: pytest.TempPathFactory) -> tvm.runtime.Module:
    return tvm.runtime.load_module(str(built.export(tmp_path_factory.mktemp("adaptive") / "model.so")))


def sample() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, 6, 6, 4)).astype("float32")


@pytest.fixture(scope="module")
def wanted(opencl: None) -> np.ndarray:
    return answer(convolutions(6, 4, 3, 4)[1], sample())


@pytest.mark.parametrize("sharing", ["svm", "mapped", "copied"])
def test_every_plan_gives_the_answer_and_takes_the_inputs_along(
    loaded: tvm.runtime.Module, wanted: np.ndarray, sharing: str
) -> None:
    module = CoModule(loaded, tvm.cpu(), sharing=sharing)
    module.set_inputs({"x": sample()})
    for number in (0, 1, 2, 1, 0, 2):
        module.fix_plan(number)
        np.testing.assert_allclose(module.run()[0], wanted, rtol=1e-4, atol=1e-5)
    module.fix_plan(None)
    for _ in range(80):
        np.testing.assert_allclose(module.run()[0], wanted, rtol=1e-4, atol=1e-5)
    assert module.adaptation.runs == 80


def test_the_library_names_its_plans(loaded: tvm.runtime.Module) -> None:
    module = CoModule(loaded, tvm.cpu())
    assert [(p.name, p.state) for p in module.about.plans] == [(name, state) for name, state, _, _ in PLANS]
    assert [p.plan for p in module.about.plans] == [{"name": name} for name, *_ in PLANS]
    assert module.about.plan == {"name": "calm"}
    assert module.plan_name(2) == "other"
    with pytest.raises(UserError, match="no plan 3"):
        module.fix_plan(3)


def test_only_a_plan_for_a_busy_cpu_waits_on_other_cores(loaded: tvm.runtime.Module) -> None:
    before = os.sched_getaffinity(0)
    own, of_gpu = {min(before)}, {int(core) for core in os.environ["CODL_GPU_CORES"].split(",")}
    module = CoModule(loaded, tvm.cpu())
    module.set_inputs({"x": sample()})
    os.sched_setaffinity(0, own)
    try:
        for number, wanted in ((1, own | of_gpu), (0, own), (1, own | of_gpu), (2, own)):
            module.fix_plan(number)
            module.run()
            assert os.sched_getaffinity(0) == wanted
        # Cores that were chosen are kept, and given back.
        module.apply(Settings(cpu_cores=tuple(own)))
        os.sched_setaffinity(0, before)
        module.fix_plan(1)
        module.run()
        assert os.sched_getaffinity(0) == before
    finally:
        os.sched_setaffinity(0, before)


def metronomes() -> dict[int, int]:
    """By thread, how often it has slept."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            lines = (task / "status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):  # It ended since the folder was read.
            continue
        status = dict(line.split(":\t", 1) for line in lines)
        if status["Name"] == "codl metronome":
            found[int(task.name)] = int(status["voluntary_ctxt_switches"])
    return found


def places(threads: Iterable[int]) -> list[set[int]]:
    return sorted((os.sched_getaffinity(thread) for thread in threads), key=min)


def beats(module: CoModule, plan: int) -> list[int]:
    """Of each metronome in this process, while the plan runs for a tenth of a second."""
    module.fix_plan(plan)
    module.run()
    time.sleep(0.1)
    before = metronomes()
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        module.benchmark(100, 1)
    return [slept - before[thread] for thread, slept in metronomes().items()]


@pytest.mark.alone
def test_turns_are_short_while_a_plan_for_a_busy_cpu_runs(loaded: tvm.runtime.Module) -> None:
    gc.collect()
    before, others = os.sched_getaffinity(0), metronomes().keys()
    cores = sorted(before)[:2]
    os.sched_setaffinity(0, cores)
    try:
        module = CoModule(loaded, tvm.cpu())
        module.set_inputs({"x": sample()})
        made = metronomes().keys() - others
        wait_until(lambda: places(made) == [{core} for core in cores], "one metronome on each core")
        assert sorted(beats(module, 1))[-len(made)] > 5
        # Other plans, and a library that does not run, leave the cores alone.
        assert max(beats(module, 0)) <= 1 and max(beats(module, 2)) <= 1
        module.apply(Settings(cpu_cores=(cores[-1],)))
        kept = metronomes().keys() - others
        wait_until(lambda: places(kept) == [{cores[-1]}], "one metronome on the core that was chosen")
        del module
        assert metronomes().keys() == others
    finally:
        os.sched_setaffinity(0, before)


def test_competing_threads_end_when_they_are_told_and_with_their_module(opencl: None) -> None:
    compete = tvm.get_global_func("codl.compete")

    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = threads()
    load = compete(2)
    assert threads() == before + 2
    load["stop"]()
    load["stop"]()
    assert threads() == before
    load = compete(1)
    del load
    assert threads() == before
    with pytest.raises(Exception, match="1 to 64 competing threads"):
        compete(0)


def test_equal_weights_are_stored_once(built: Library) -> None:
    """The plans differ in rows alone or in channels alone, so they share the weights of what is not cut otherwise."""
    programs = [entry["program"] for entry in json.loads(built.module["program"]())["plans"]]
    names = [{w["name"] for w in program["weights"]} for program in programs]
    assert names[0] == names[1], "rows are cut elsewhere, the weights are the same"
    assert names[0] & names[2] and names[0] != names[2]


def test_equal_kernels_are_compiled_once(built: Library) -> None:
    programs = [entry["program"] for entry in json.loads(built.module["program"]())["plans"]]
    called = [{s["function"] for s in p["cpu"] + p["gpu"] if s["do"] == "call"} for p in programs]
    assert called[0] & called[1] and called[0] & called[2]


def test_a_timeline_tells_of_switches_once(loaded: tvm.runtime.Module) -> None:
    module = CoModule(loaded, tvm.cpu())
    module.run({"x": sample()})
    # Tiny runs are all noise, so sooner or later one plan beats another; what is told must agree with what is counted.
    for _ in range(400):
        module.benchmark(25, 1)
        if module.adaptation.switches:
            break
    told = [e for e in read_events(module.timeline()) if e.kind == "switch"]
    assert len(told) == len(module.adaptation.switches)
    for event, switch in zip(told, module.adaptation.switches, strict=True):
        names = f"{module.plan_name(switch.left)} -> {module.plan_name(switch.taken)}"
        assert event.name.startswith(f"{names}: {switch.reason}")
    assert not [e for e in read_events(module.timeline()) if e.kind == "switch"]


def test_a_library_of_one_plan_has_nothing_to_choose(tmp_path: Path) -> None:
    split, _ = convolutions(6, 4, 3, 4)
    path = build(split, tvm.target.Target("llvm"), tvm.target.Target("opencl")).export(tmp_path / "one.so")
    before = metronomes().keys()
    module = CoModule(tvm.runtime.load_module(str(path)), tvm.cpu())
    module.run({"x": sample()})
    assert (module.adaptation.plan, module.adaptation.switches, module.plan_name(0)) == (0, (), "")
    assert metronomes().keys() == before


TWO: dict[str, Any] = {
    "format": 2,
    "plans": [
        {"name": "a", "state": "calm", "program": PROGRAM},
        {"name": "b", "state": "cpu busy", "program": PROGRAM},
    ],
}


def changed(*path: Any, to: Any) -> dict[str, Any]:
    plans = json.loads(json.dumps(TWO))  # both have the same program, which a deep copy would change in both
    at: Any = plans
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return plans


SHORT = {"buffer": 0, "offset": 0, "shape": [2], "dtype": "float32"}


@pytest.mark.parametrize(
    ("plans", "words"),
    [
        (changed("plans", to=7), "no list"),
        (changed("plans", to=[]), "none or too many"),
        (changed("plans", to=TWO["plans"] * 9), "none or too many"),
        (changed("plans", 1, to="b"), "no object"),
        (changed("plans", 1, "name", to=1), "name is no string"),
        (changed("plans", 1, "state", to="moon"), "unknown state moon"),
        (changed("plans", 1, to={"name": "b", "state": "calm"}), "no field program"),
        (changed("plans", 1, "program", to={}), "no field format"),
        (changed("plans", 1, "program", "inputs", to=[]), "different numbers"),
        (changed("plans", 1, "program", "inputs", 0, "view", to=SHORT), "different shapes of x"),
        (changed("plans", 1, "program", "outputs", 0, "view", "dtype", to="int32"), "different types of y"),
    ],
)
def test_damaged_plans_are_refused(plans: dict[str, Any], words: str) -> None:
    create = tvm.get_global_func("codl.create_library")
    create(json.dumps(TWO), "{}", 0)
    with pytest.raises(Exception, match=words):
        create(json.dumps(plans), "{}", 0)
