"""What all tests share: a private cache, the reference phone's environment, the order and the company that tests run in."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.examples  # noqa: F401  the profiles of property tests

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests may import onnxruntime before the package
os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")
# A shell ignores interrupts for what it runs in the background, and so would everything that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]
#: The first files and folders of a run on several workers, in this order: those that need no native build, then long ones.
FIRST = ("tests/relay", "tests/frontend", "tests/kernels", "tests/runtime", "tests/e2e", "tests/phone", "tests/measure")
#: Waits for the longest of the native builds.
LATER = "tests/runtime/test_sanitizers.py"
BUILDS = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_configure(config: pytest.Config) -> None:
    """Several workers: what native programs they need is built beside them."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        line = [sys.executable, "-m", "tests.native_builds"]
        config.stash[BUILDS] = subprocess.Popen(
            line, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    if (builds := config.stash.get(BUILDS, None)) is not None:
        if builds.poll() is None:
            os.killpg(builds.pid, signal.SIGKILL)
        builds.wait()


def place(item: pytest.Item) -> tuple[bool, int]:
    """Tests that run alone come last, small files before them."""
    file = item.nodeid.split("::")[0]
    folders = [number for number, first in enumerate(FIRST) if file.startswith(first)]
    number = len(FIRST) - 1.5 if file == LATER else folders[0] if folders else len(FIRST)
    return item.get_closest_marker("alone") is not None, number


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each file runs in one worker, and all tests that run alone in one."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=place)
        for item in items:
            group = "alone" if item.get_closest_marker("alone") else item.nodeid.split("::")[0]
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that runs alone waits until the other workers' tests have ended, and they wait for it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return (yield)
    with open(Path(tempfile.gettempdir()) / f"tvm_codl-tests-{run}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH)
        return (yield)


@pytest.fixture(scope="session")
def opencl() -> None:
    """OpenCL and the native plugin, in this process.  The GPU's worker gets the last core, as on the reference phone."""
    from tvm_codl.runtime import opencl as found
    from tvm_codl.runtime import plugin

    os.environ.update(found.environment())
    cores = sorted(os.sched_getaffinity(0))
    os.environ.setdefault("CODL_GPU_CORES", str(cores[-1]))
    plugin.load()


@pytest.fixture()
def library_path(tmp_path: Path) -> Path:
    return tmp_path / "model.so"


@pytest.fixture(scope="session")
def no_pause() -> Iterator[None]:
    """No wait for a calm machine before measuring: no test compares times."""
    from tvm_codl.measure import interleave

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interleave, "CALM_S", 0.0)
        patch.setattr(interleave, "PATIENCE_S", 0.0)
        yield
