"""What a plan's settings do to the co-executor: flush periods, threads and cores."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given
from hypothesis import settings as testing
from hypothesis import strategies as st
from tvm import relay

from tests.examples import examples
from tests.phone.servers import phone_server
from tests.runtime.partitions import Network, answer, convolutions
from tvm_codl.build.library import build
from tvm_codl.device.connect import connect
from tvm_codl.device.spec import Direct
from tvm_codl.errors import DeviceError, UserError
from tvm_codl.measure.worker import open_remote
from tvm_codl.plan.plan import Plan
from tvm_codl.records.settings import DEFAULT, Settings
from tvm_codl.runtime.comodule import CoModule

pytestmark = pytest.mark.usefixtures("opencl")
ROOT = Path(__file__).parents[2]
CORES = tuple(sorted(os.sched_getaffinity(0)))
SETTINGS = Settings(flush_every=2, cpu_threads=1, cpu_cores=(CORES[0],))
TURNS = 60


def sample() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, 12, 12, 16)).astype("float32")


def exported(mod: tvm.IRModule, path: Path, settings: Settings = DEFAULT) -> Path:
    plan = msgspec.to_builtins(Plan("net", "phone", (), settings=settings))
    return build(mod, tvm.target.Target("llvm"), tvm.target.Target("opencl"), plan).export(path)


def turns() -> tvm.IRModule:
    """The processors take turns, so that each waits for the other again and again; 3 is added in each turn."""
    net = Network()
    value: relay.Expr = relay.var("x", shape=(1, 64))
    x = value
    for _ in range(TURNS):
        value = net.region("gpu", lambda p: p + relay.const(1.0), value, shapes=[(1, 64)])
        value = net.region("cpu", lambda p: p + relay.const(2.0), value, shapes=[(1, 64)])
    return net.finish([x], value)


@pytest.fixture(scope="module")
def library(opencl: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(convolutions()[0], tmp_path_factory.mktemp("lib") / "model.so", SETTINGS)


@pytest.fixture(scope="module")
def modules(library: Path) -> dict[str, CoModule]:
    loaded = tvm.runtime.load_module(str(library))
    return {sharing: CoModule(loaded, tvm.cpu(), sharing=sharing) for sharing in ("svm", "mapped", "copied")}


@pytest.fixture(scope="module")
def wanted() -> np.ndarray:
    return answer(convolutions()[1], sample())


@given(st.integers(0, 40), st.sampled_from(["svm", "mapped", "copied"]))
@testing(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flush_period_gives_the_answer(
    modules: dict[str, CoModule], wanted: np.ndarray, period: int, sharing: str
) -> None:
    module = modules[sharing]
    module.apply(msgspec.structs.replace(DEFAULT, flush_every=period))
    np.testing.assert_allclose(module.run({"x": sample()})[0], wanted, rtol=1e-4, atol=1e-5)
    assert module.timeline()


def test_processors_that_wait_for_each_other_never_wait_for_ever(tmp_path: Path) -> None:
    loaded = tvm.runtime.load_module(str(exported(turns(), tmp_path / "turns.so")))
    value = np.zeros((1, 64), "float32")
    for sharing in ("svm", "mapped", "copied"):
        module = CoModule(loaded, tvm.cpu(), sharing=sharing)
        for period in (0, 1, 2, 3, 7, 1 << 20):
            module.apply(Settings(flush_every=period))
            module.benchmark(5, 1)
            np.testing.assert_array_equal(module.run({"x": value})[0], value + 3 * TURNS)


def test_a_library_runs_with_the_settings_of_its_plan(library: Path, wanted: np.ndarray) -> None:
    before = os.sched_getaffinity(0)
    module = CoModule(tvm.runtime.load_module(str(library)), tvm.cpu())
    assert module.settings == SETTINGS
    assert module.cpu_cores == [[CORES[0]]]
    np.testing.assert_allclose(module.run({"x": sample()})[0], wanted, rtol=1e-4, atol=1e-5)
    assert os.sched_getaffinity(0) == before, "the thread that ran has its own cores again"
    module.apply(DEFAULT)
    assert module.cpu_cores == [sorted(before)]


def affinities() -> dict[str, set[int]]:
    """The cores of each thread of this process."""
    found = {}
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it ended since the folder was read
            found[task] = os.sched_getaffinity(int(task))
    return found


def test_the_gpus_threads_keep_their_cores(library: Path) -> None:
    module = CoModule(tvm.runtime.load_module(str(library)), tvm.cpu())
    module.apply(DEFAULT)
    module.run({"x": sample()})
    before = affinities()
    module.apply(Settings(cpu_cores=(CORES[0],)))
    module.run({"x": sample()})
    after = {task: cores for task, cores in affinities().items() if task in before}
    assert len(after) > 1
    assert after == {task: before[task] for task in after}


def test_modules_of_one_thread_run_each_with_its_own(library: Path) -> None:
    loaded = tvm.runtime.load_module(str(library))
    pinned, free = CoModule(loaded, tvm.cpu()), CoModule(loaded, tvm.cpu())
    free.apply(DEFAULT)
    for _ in range(3):
        assert pinned.cpu_cores == [[CORES[0]]]
        assert free.cpu_cores == [list(CORES)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(cpu_threads=1000), "CPU threads, not 1000"),
        (Settings(cpu_cores=(1023,)), "core 1023 is not there"),
        (Settings(cpu_cores=(CORES[0], 1023)), "core 1023 is not there"),
    ],
)
def test_what_the_device_has_not_is_refused_and_changes_nothing(
    modules: dict[str, CoModule], settings: Settings, words: str
) -> None:
    module = modules["svm"]
    module.apply(SETTINGS)
    with pytest.raises(DeviceError, match=words):
        module.apply(settings)
    assert module.settings == SETTINGS
    assert module.cpu_cores == [[CORES[0]]]


def test_a_library_with_settings_of_another_version_is_refused(tmp_path: Path) -> None:
    built = build(convolutions()[0], tvm.target.Target("llvm"), tvm.target.Target("opencl"), {"settings": {"warp": 1}})
    with pytest.raises(UserError, match="another version"):
        CoModule(tvm.runtime.load_module(str(built.export(tmp_path / "later.so"))), tvm.cpu())


THREADS = """
import json, os, sys
import numpy as np, tvm
from tvm_codl.records.settings import Settings
from tvm_codl.runtime import plugin
from tvm_codl.runtime.comodule import CoModule
plugin.load()
cores = sorted(os.sched_getaffinity(0))
module = CoModule(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
x = np.random.default_rng(1).standard_normal((1, 12, 12, 16)).astype("float32")
found = []
for settings in (Settings(), Settings(cpu_threads=1), Settings(cpu_threads=3), Settings(cpu_cores=(cores[0],)), Settings()):
    module.apply(settings)
    found.append([module.cpu_cores, float(module.run({"x": x})[0].sum())])
print(json.dumps([cores, found]))
"""


def printed(script: str, library: Path, **environment: str) -> str:
    """The last line that the script prints, in a process whose pool of threads is as the environment says."""
    plain = {name: value for name, value in os.environ.items() if name != "TVM_THREAD_POOL_SPIN_COUNT"}
    env = {**plain, "TVM_BIND_THREADS": "0", "PYTHONPATH": str(ROOT), **environment}
    line = [sys.executable, "-c", script, str(library)]
    done = subprocess.run(line, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def test_as_many_threads_as_asked_for_work(library: Path) -> None:
    """In a process of its own: how many threads TVM's pool has is settled once for all by the environment."""
    cores, found = json.loads(printed(THREADS, library, TVM_NUM_THREADS="3"))
    usual = [cores] * min(3, os.cpu_count() or 1)  # TVM does not start with more than the machine has cores
    assert [seen for seen, _ in found] == [usual, [cores], [cores] * 3, [[cores[0]]], usual]
    assert max(total for _, total in found) == pytest.approx(min(total for _, total in found), rel=1e-5)


IDLE = """
import contextlib, pathlib, sys, time
import numpy as np, tvm
from tvm_codl.runtime import plugin
from tvm_codl.runtime.comodule import CoModule
plugin.load()

def computed_ns():
    found = {}
    for each in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended
            found[each.name] = int((each / "schedstat").read_text().split()[0])
    return found

module = CoModule(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
x = np.zeros((1, 12, 12, 16), "float32")
module.run({"x": x})
before = computed_ns()
time.sleep(1)
after = computed_ns()
print(max(after[each] - before[each] for each in before if each in after) / 1e6)
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="TVM's pool has no other thread on one core")
def test_threads_without_work_sleep(library: Path) -> None:
    """Else they share the CPU's cores with what runs within 0.3 s after it, such as the GPU's turn of a race."""
    asked = float(printed(IDLE, library, TVM_NUM_THREADS="2", TVM_THREAD_POOL_SPIN_COUNT="300000"))
    assert float(printed(IDLE, library, TVM_NUM_THREADS="2")) < asked / 4


def test_a_phone_behind_rpc_does_what_the_plan_says(library: Path, wanted: np.ndarray, tmp_path: Path) -> None:
    with (
        phone_server(tmp_path, port=0, key="codl") as server,
        connect(Direct("127.0.0.1", server.port, "codl")) as phone,
    ):
        core = phone.profile.cpu_cores[0]
        module = open_remote(phone, library)
        assert module.settings == SETTINGS
        assert module.cpu_cores == [[core]]
        for period in (0, 1, 4):
            module.apply(Settings(flush_every=period))
            np.testing.assert_allclose(module.run({"x": sample()})[0], wanted, rtol=1e-4, atol=1e-5)
        with pytest.raises(DeviceError, match="CPU threads, not 64"):
            module.apply(Settings(cpu_threads=64))
