"""A kernel is compiled once; a library made of kept kernels is the one made without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.runtime.partitions import answer, convolutions
from tvm_codl.build import kernel, kernel_cache, library, region
from tvm_codl.build.kernel_cache import KernelCache
from tvm_codl.runtime import opencl as found
from tvm_codl.runtime import plugin
from tvm_codl.runtime.comodule import CoModule

pytestmark = pytest.mark.usefixtures("opencl")
HERE = Path(__file__).parent
SAMPLE = np.random.default_rng(1).standard_normal((1, 12, 12, 16)).astype("float32")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "cache_dir", lambda: tmp_path)


def made(mod: tvm.IRModule, path: Path, cache: KernelCache | None = None, backwards: bool = False) -> bytes:
    targets = tvm.target.Target("llvm"), tvm.target.Target("opencl")
    return library.build(mod, *targets, cache=cache, backwards=backwards).export(path).read_bytes()


def test_a_library_of_kept_kernels_is_the_one_made_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split, whole = convolutions()
    path = tmp_path / "net.so"
    alone = made(split, path)
    first = made(split, path, KernelCache("here"))
    monkeypatch.setattr(region, "compile_kernel", None)
    monkeypatch.setattr(region.relay, "optimize", None)
    second = made(split, path, KernelCache("here"))
    reverse = made(split, path, KernelCache("here"), backwards=True)
    assert alone == first == second == reverse
    got = CoModule(tvm.runtime.load_module(str(path)), tvm.cpu()).run({"x": SAMPLE})[0]
    np.testing.assert_allclose(got, answer(whole, SAMPLE), rtol=1e-4, atol=1e-5)


def test_other_weights_need_no_other_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KernelCache("here")
    made(convolutions(seed=0)[0], tmp_path / "one.so", cache)

    def compiled(*_: object) -> None:
        raise AssertionError("compiled once more")

    monkeypatch.setattr(kernel.te_compiler, "get", compiled)
    split, whole = convolutions(seed=1)
    made(split, tmp_path / "two.so", cache)
    got = CoModule(tvm.runtime.load_module(str(tmp_path / "two.so")), tvm.cpu()).run({"x": SAMPLE})[0]
    np.testing.assert_allclose(got, answer(whole, SAMPLE), rtol=1e-4, atol=1e-5)


def build_counter(folder: Path) -> Path:
    """A stand-in for OpenCL's library that counts what it builds."""
    real = found.environment()["CODL_OPENCL_LIBRARY"]
    counter, headers = folder / "counter.so", Path(tvm.__file__).parent / "3rdparty" / "OpenCL-Headers"
    source = [str(HERE / "build_counter.cc"), f"-I{headers}", "-DCL_TARGET_OPENCL_VERSION=120"]
    behind = ["-Wl,--no-as-needed", real, f"-Wl,-rpath,{Path(real).parent}", "-ldl"]
    subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", *source, "-o", str(counter), *behind], check=True)
    return counter


def build_on_a_phone(counter: Path, libraries: list[Path], names_calls: bool = False) -> dict[str, Any]:
    """What ``tests.runtime.building`` says."""
    env = {**os.environ, **found.environment(), "CODL_OPENCL_LIBRARY": str(counter), "PYTHONPATH": str(HERE.parents[1])}
    env["TVM_CODL_PLUGIN"] = str(plugin.path())
    env.pop("CODL_OPENCL_CALLS", None)
    env |= {"CODL_OPENCL_CALLS": "1"} if names_calls else {}
    command = [sys.executable, "-m", "tests.runtime.building", counter, *libraries]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_phone_builds_a_kernel_once(opencl: None, tmp_path: Path) -> None:
    """Two libraries of the same kernels are loaded, and one of others."""
    same = [tmp_path / "one.so", tmp_path / "two.so"]
    for path in same:
        made(convolutions()[0], path)
    made(convolutions(channel=4)[0], tmp_path / "other.so")
    said = build_on_a_phone(build_counter(tmp_path), [*same, tmp_path / "other.so"])
    first, second, other = said["builds"]
    assert 0 < first == second < other < 2 * first
    assert max(said["errors"]) < 1e-4


def test_a_kernel_is_built_with_the_names_that_it_calls(opencl: None, tmp_path: Path) -> None:
    """Where the driver's header has a use for them; for a phone's driver nothing changes."""
    made(convolutions()[0], tmp_path / "one.so")
    counter = build_counter(tmp_path)
    options = build_on_a_phone(counter, [tmp_path / "one.so"], names_calls=True)["options"].split()
    assert options[0] == "-DCODL_CALLS" and len(options) == len(set(options))
    assert "-DCODL_CALLS_get_group_id" in options and "-DCODL_CALLS_acos" not in options
    assert build_on_a_phone(counter, [tmp_path / "one.so"])["options"] == ""


def test_constants_and_targets_tell_kernels_apart() -> None:
    x = relay.var("x", shape=(4,))
    host = tvm.target.Target("llvm")
    one, other = (tvm.target.Target(name, host=host) for name in ("llvm", "llvm -mcpu=skylake"))
    near = [relay.Function([x], x * relay.const(value)) for value in (0.1, float(np.nextafter(np.float32(0.1), 1)))]
    leaks = [relay.Function([x], relay.nn.leaky_relu(x, alpha=a)) for a in (0.1, 0.1 + 1e-12)]
    found = {
        kernel.digest_of(relay.transform.InferType()(tvm.IRModule.from_expr(f))["main"], t)
        for f in (*near, *leaks)
        for t in (one, other)
    }
    assert len(found) == 8
