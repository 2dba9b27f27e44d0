"""The co-executor on hand-made partitions: right answers in every kind of memory, steady, alone and among threads."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
import tvm

from tests.runtime.partitions import Network, answer, convolutions
from tvm_codl.build.library import build
from tvm_codl.errors import UserError
from tvm_codl.runtime.comodule import CoModule

pytestmark = pytest.mark.usefixtures("opencl")
CPU, GPU = "llvm", "opencl"


def made(mod: tvm.IRModule, path: Path) -> tvm.runtime.Module:
    built = build(mod, tvm.target.Target(CPU), tvm.target.Target(GPU))
    return tvm.runtime.load_module(str(built.export(path)))


def sample(extent: int = 12, channels: int = 16, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, extent, extent, channels)).astype("float32")


@pytest.fixture(scope="module")
def loaded(opencl: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[tvm.runtime.Module, np.ndarray]:
    split, whole = convolutions()
    return made(split, tmp_path_factory.mktemp("lib") / "model.so"), answer(whole, sample())


@pytest.mark.parametrize("sharing", ["svm", "mapped", "copied"])
def test_split_network_gives_the_unsplit_answer(loaded: tuple, sharing: str) -> None:
    library, wanted = loaded
    module = CoModule(library, tvm.cpu(), sharing=sharing)
    for _ in range(3):
        np.testing.assert_allclose(module.run({"x": sample()})[0], wanted, rtol=1e-4, atol=1e-5)
    assert module.sharing == sharing


def test_joining_costs_no_copy_where_memory_is_one(loaded: tuple) -> None:
    library, _ = loaded
    shared, copied = (CoModule(library, tvm.cpu(), sharing=s) for s in ("svm", "copied"))
    shared.run({"x": sample()})
    copied.run({"x": sample()})
    assert shared.copied_bytes == 0
    assert copied.copied_bytes > 0


def test_parts_that_break_the_cpu_alignment_are_copied_and_counted(tmp_path: Path) -> None:
    """TVM's CPU code assumes 64-byte alignment, and a row of 3 x 3 floats has 36 bytes."""
    from tvm import relay

    net = Network()
    x = relay.var("x", shape=(1, 5, 3, 3))
    a = net.region("gpu", lambda p: relay.nn.relu(p), x, shapes=[(1, 5, 3, 3)])
    part = relay.strided_slice(a, [1], [5], strides=[1], axes=[1])
    b = net.region("cpu", lambda p: p * relay.const(2.0), part, shapes=[(1, 4, 3, 3)])
    module = CoModule(made(net.finish([x], b), tmp_path / "odd.so"), tvm.cpu(), sharing="svm")
    value = np.random.default_rng(3).standard_normal((1, 5, 3, 3)).astype("float32")
    np.testing.assert_allclose(module.run({"x": value})[0], np.maximum(value, 0)[:, 1:] * 2, rtol=1e-6)
    assert module.copied_bytes == 4 * 3 * 3 * 4


@pytest.mark.parametrize("sharing", ["svm", "mapped", "copied"])
def test_sub_buffers_that_the_device_cannot_align_are_copied(tmp_path: Path, sharing: str) -> None:
    split, whole = convolutions(extent=7, channels=3, row=3, channel=1)
    module = CoModule(made(split, tmp_path / "odd.so"), tvm.cpu(), sharing=sharing)
    value = sample(7, 3)
    np.testing.assert_allclose(module.run({"x": value})[0], answer(whole, value), rtol=1e-4, atol=1e-5)


def test_where_memories_are_two_parts_are_copied_since_drivers_crash_on_sub_buffers(tmp_path: Path) -> None:
    split, whole = convolutions(extent=48, channels=32, row=24, channel=32)
    library, value = made(split, tmp_path / "aligned.so"), sample(48, 32)
    mapped, copied = (CoModule(library, tvm.cpu(), sharing=s) for s in ("mapped", "copied"))
    for module in (mapped, copied):
        np.testing.assert_allclose(module.run({"x": value})[0], answer(whole, value), rtol=1e-4, atol=1e-4)
    assert copied.memory_bytes.scratch > mapped.memory_bytes.scratch


def test_a_reshape_that_is_all_of_a_region(tmp_path: Path) -> None:
    from tvm import relay

    net = Network()
    x = relay.var("x", shape=(1, 4, 4, 2))
    a = net.region("gpu", lambda p: relay.reshape(p, (1, 32)), x, shapes=[(1, 4, 4, 2)])
    b = net.region("cpu", lambda p: relay.reshape(p, (4, 8)), a, shapes=[(1, 32)])
    c = net.region("gpu", lambda p: relay.reshape(p, (32,)), b, shapes=[(4, 8)])
    library = made(net.finish([x], c), tmp_path / "reshape.so")
    value = np.arange(32, dtype="float32").reshape(1, 4, 4, 2)
    for sharing in ("svm", "mapped", "copied"):
        np.testing.assert_array_equal(CoModule(library, tvm.cpu(), sharing=sharing).run({"x": value})[0], value.ravel())


@pytest.mark.alone
def test_both_processors_work_at_the_same_time(tmp_path: Path) -> None:
    """The GPU's part starts before the CPU's part ends: overlap as a fact of order, not of speed."""
    split, _ = convolutions(extent=48, channels=32, row=24, channel=32)
    module = CoModule(made(split, tmp_path / "overlap.so"), tvm.cpu())
    module.run({"x": sample(48, 32)})
    overlapping = 0
    for _ in range(10):
        events = [e for e in module.timeline() if e["kind"] == "kernel"]
        cpu = [e for e in events if e["processor"] == "cpu"]
        gpu = [e for e in events if e["processor"] == "gpu"]
        overlapping += any(c["start_us"] < g["end_us"] and g["start_us"] < c["end_us"] for c in cpu for g in gpu)
    assert overlapping == 10


def test_a_thousand_runs_leak_nothing_and_agree(loaded: tuple) -> None:
    library, _ = loaded
    module = CoModule(library, tvm.cpu())
    first = module.run({"x": sample()})[0]
    module.benchmark(200, 1)
    before = psutil.Process().memory_info().rss
    module.benchmark(1000, 1)
    grown = psutil.Process().memory_info().rss - before
    np.testing.assert_array_equal(module.run()[0], first)
    assert grown < 8 << 20, f"{grown} bytes more after 1,000 runs"


def test_eight_threads_each_with_a_module_of_its_own(loaded: tuple) -> None:
    library, wanted = loaded
    wrong: list[object] = []

    def work() -> None:
        try:
            module = CoModule(library, tvm.cpu())
            module.set_inputs({"x": sample()})
            for _ in range(25):
                if not np.allclose(module.run()[0], wanted, rtol=1e-4, atol=1e-5):
                    wrong.append("another answer")
        except Exception as error:  # a thread's exception would else be lost
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_inputs_of_the_wrong_name_shape_or_type_are_refused(loaded: tuple) -> None:
    module = CoModule(loaded[0], tvm.cpu())
    with pytest.raises(UserError, match="takes the inputs"):
        module.run({"y": sample()})
    with pytest.raises(UserError, match=r"must be float32\[1, 12, 12, 16\]"):
        module.run({"x": sample(11)})
    with pytest.raises(UserError, match="must be float32"):
        module.run({"x": sample().astype("float64")})


def test_a_library_of_another_maker_is_refused(tmp_path: Path) -> None:
    from tvm import te

    a = te.placeholder((4,), name="a")
    schedule = te.create_schedule(te.compute((4,), lambda i: a[i] + 1.0, name="b").op)
    foreign = tvm.build(schedule, [a], "llvm")
    foreign.export_library(str(tmp_path / "foreign.so"))
    with pytest.raises(UserError, match="not built by tvm_codl"):
        CoModule(tvm.runtime.load_module(str(tmp_path / "foreign.so")), tvm.cpu())


def test_nothing_is_left_behind_by_a_build(tmp_path: Path) -> None:
    split, _ = convolutions()
    made(split, tmp_path / "model.so")
    assert os.listdir(tmp_path) == ["model.so"]


def test_the_library_says_what_it_holds(loaded: tuple) -> None:
    about = json.loads(loaded[0]["about"]())
    assert [r["processor"] for r in about["regions"]] == ["cpu", "gpu"] * 3
    assert about["build"]["tvm"] == tvm.__version__
