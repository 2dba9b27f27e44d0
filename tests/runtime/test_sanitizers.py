"""The native part under AddressSanitizer with UBSan, and under ThreadSanitizer.

Only our own code is instrumented: TVM, the OpenCL driver and Python are not, so reports about what they do among
themselves are suppressed, and leaks are looked for in another test (libraries that are never unloaded look like some).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_codl.runtime import opencl as found
from tvm_codl.runtime.compile import compile_native

ROOT = Path(__file__).parents[2]
SUPPRESS = "\n".join(f"race:{library}" for library in ("libpocl", "libtvm.so", "libLLVM", "libhwloc"))


def runtime(name: str) -> str:
    path = subprocess.run(
        ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(path).is_absolute():
        pytest.skip(f"g++ has no {name}")
    return str(Path(path).resolve())


@pytest.fixture(scope="module")
def model(opencl: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tvm

    from tests.runtime.adaptive_networks import exported
    from tests.runtime.partitions import convolutions
    from tvm_codl.build.library import build

    split, _ = convolutions(extent=6, channels=4, row=3, channel=4)
    built = build(split, tvm.target.Target("llvm"), tvm.target.Target("opencl"))
    path = built.export(tmp_path_factory.mktemp("sanitized") / "model.so")
    exported(path.with_name("adaptive.so"))
    return path


def run(model: Path, sanitize: str, library: str, extra: dict[str, str]) -> subprocess.CompletedProcess[str]:
    plugin = compile_native(sanitize=sanitize)
    env = {
        **os.environ,
        **found.environment(),
        **extra,
        # libstdc++ too: the sanitizer looks for its throw at start, and Python itself does not load it.
        "LD_PRELOAD": f"{runtime(library)} {runtime('libstdc++.so.6')}",
        "TVM_CODL_PLUGIN": str(plugin),
        "PYTHONPATH": str(ROOT),
        "TVM_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.runtime.sanitized", str(model), str(model.with_name("adaptive.so"))]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


def test_address_and_undefined_behaviour(model: Path) -> None:
    options = "detect_leaks=0:alloc_dealloc_mismatch=0:detect_odr_violation=0:halt_on_error=1"
    done = run(model, "address,undefined", "libasan.so", {"ASAN_OPTIONS": options, "UBSAN_OPTIONS": "halt_on_error=1"})
    assert "SANITIZED RUN DONE" in done.stdout, done.stderr[-4000:]
    assert "ERROR: AddressSanitizer" not in done.stderr, done.stderr[-4000:]
    assert "runtime error" not in done.stderr, done.stderr[-4000:]


def test_threads(model: Path, tmp_path: Path) -> None:
    suppressions = tmp_path / "tsan.txt"
    suppressions.write_text(SUPPRESS + "\n")
    options = f"suppressions={suppressions}:report_signal_unsafe=0:ignore_noninstrumented_modules=1:exitcode=0"
    done = run(model, "thread", "libtsan.so", {"TSAN_OPTIONS": options})
    assert "SANITIZED RUN DONE" in done.stdout, done.stderr[-4000:]
    ours = [x for x in done.stderr.split("==================") if "WARNING: ThreadSanitizer" in x and "tvm_codl" in x]
    assert not ours, "\n".join(ours)[:6000]
