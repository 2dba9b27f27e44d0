"""What a library holds in memory: tensors lie where others were, weights are there once, and the answers stay right."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.relay.networks import Weights, conv
from tests.relay.oracle import CPU, assert_same, partitioned, plan_of, random_inputs, run_together
from tests.runtime.partitions import Network
from tvm_codl.build.library import build
from tvm_codl.build.program import memory_bytes
from tvm_codl.graph.split import axes
from tvm_codl.kernels.dispatch import scheduled
from tvm_codl.kernels.register import cpu_target, gpu_target
from tvm_codl.plan.plan import Placement
from tvm_codl.relay.pipeline import extract
from tvm_codl.runtime.comodule import CoModule

pytestmark = pytest.mark.usefixtures("opencl")
SHARINGS = ("svm", "mapped", "copied")


def residual_network(blocks: int = 4) -> tvm.IRModule:
    w = Weights()
    x = image = relay.var("image", shape=(1, 12, 8, 8))
    for _ in range(blocks):
        y = relay.nn.relu(conv(x, w, 8, 16))
        x = relay.nn.relu(relay.add(conv(y, w, 16, 8, k=1), x))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([image], x)))


@pytest.fixture(scope="module")
def mixed(opencl: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[tvm.IRModule, Path, int]:
    """The network, its library with splits of every kind, and the bytes of its weights."""
    mod = residual_network()
    graph, weights, prepared = extract(mod)
    placements = {}
    for number, operator in enumerate(graph.operators):
        found = axes(operator, graph)
        height, channels = found["height"], found["channels"]
        turns = (
            Placement("split", "height", height.extent // 2),
            Placement("split", "channels", channels.granule * (channels.extent // channels.granule // 2)),
            Placement("gpu"),
            Placement("split", "height", height.extent // 3),
            CPU,
        )
        placements[operator.id] = turns[number % len(turns)]
    assert len({p.on for p in placements.values()}) == 3
    cpu = cpu_target()
    with scheduled():
        library = build(partitioned(prepared, plan_of(graph, placements)), cpu, gpu_target(cpu))
    path = library.export(tmp_path_factory.mktemp("memory") / "mixed.so")
    return mod, path, sum(value.nbytes for value in weights.values())


@pytest.fixture()
def library(mixed: tuple, tmp_path: Path) -> tvm.runtime.Module:
    """The library, loaded for one test alone: of one file loaded twice, TVM's code would call the first one's functions."""
    return tvm.runtime.load_module(str(shutil.copy(mixed[1], tmp_path)))


def apart(program: dict[str, Any]) -> dict[str, Any]:
    """The program with memory of its own for every buffer."""
    return {**program, "buffers": [{"bytes": b["bytes"], "space": b["space"]} for b in program["buffers"]]}


@cache
def answered(mod: tvm.IRModule, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Random inputs, and what stock Relay makes of them."""
    inputs = random_inputs(mod, seed)
    return inputs, run_together([mod], inputs)[0]


@pytest.mark.parametrize("sharing", SHARINGS)
def test_every_run_of_a_deep_network_is_right_in_memory_that_is_used_again(
    mixed: tuple, library: tvm.runtime.Module, sharing: str
) -> None:
    mod = mixed[0]
    module = CoModule(library, tvm.cpu(), sharing=sharing)
    for seed in (1, 2, 1):
        inputs, wanted = answered(mod, seed)
        for _ in range(5):
            assert_same(module.run({"image": inputs[0]}), wanted, f"input {seed}, {sharing}")
    module.timeline()
    module.benchmark(20, 1)
    assert_same(module.get_outputs(), wanted, f"after many runs, {sharing}")


def test_the_device_holds_what_the_program_says(library: tvm.runtime.Module) -> None:
    program = json.loads(library["program"]())
    foretold, held = memory_bytes(program), CoModule(library, tvm.cpu(), sharing="svm").memory_bytes
    assert (held.weights, held.tensors) == (foretold.weights, foretold.tensors)
    assert held.tensors < memory_bytes(apart(program)).tensors / 2


def test_weights_are_there_once_however_the_network_is_cut(mixed: tuple, library: tvm.runtime.Module) -> None:
    """Both processors' parts of an operator cut along its height read the same weights; no host copy stays behind."""
    assert CoModule(library, tvm.cpu(), sharing="svm").memory_bytes.weights == mixed[2]


def test_executors_of_one_library_read_the_same_weights_in_any_kind_of_memory(
    mixed: tuple, library: tvm.runtime.Module
) -> None:
    mod, inputs = mixed[0], random_inputs(mixed[0])
    (wanted,) = run_together([mod], inputs)
    modules: list[CoModule] = []
    held: list[int] = []
    for sharing in (*SHARINGS, *SHARINGS):
        modules.append(CoModule(library, tvm.cpu(), sharing=sharing))
        held.append(modules[-1].memory_bytes.weights)
        for module in modules:
            assert_same(module.run({"image": inputs[0]}), wanted, f"{module.sharing} beside {sharing}")
    assert held[:3] == sorted(held[:3])
    assert held[2:] == [held[2]] * 4, "a second executor in the same kind of memory took weights of its own"


def test_memory_falls_where_tensors_lie_in_turn(tmp_path: Path) -> None:
    """A chain whose tensors go from one processor to the other: two are alive at a time, each in the other's place."""
    net, shape = Network(), (1, 64, 64, 4)
    x = relay.var("x", shape=shape)
    value: relay.Expr = x
    for step in range(10):
        on = "gpu" if step % 2 else "cpu"
        value = net.region(on, lambda p, step=step: relay.nn.relu(p) + relay.const(float(step)), value, shapes=[shape])
    built = build(net.finish([x], value), tvm.target.Target("llvm"), tvm.target.Target("opencl"))
    library = tvm.runtime.load_module(str(built.export(tmp_path / "chain.so")))
    program = json.loads(library["program"]())

    size, given = int(np.prod(shape)) * 4, np.random.default_rng(0).standard_normal(shape).astype("float32")
    spread = tvm.get_global_func("codl.create_library")(json.dumps(apart(program)), library["about"](), 0)
    for kernels in library.imported_modules:
        spread.import_module(kernels)
    for sharing, copies in (("svm", 1), ("copied", 2)):
        ours, theirs = (CoModule(made, tvm.cpu(), sharing=sharing) for made in (library, spread))
        np.testing.assert_array_equal(ours.run({"x": given})[0], theirs.run({"x": given})[0])
        assert theirs.memory_bytes.tensors >= 10 * size * copies
        assert ours.memory_bytes.tensors <= 4 * size * copies
        assert ours.memory_bytes.scratch == 0, "a whole tensor went through a copy"


def rows_in_two(layers: int) -> tuple[tvm.IRModule, int]:
    """A chain of element-wise layers, each cut between the same two rows; and a tensor's bytes.

    No row needs another one, so nobody waits.  A row's bytes are no multiple of what a sub-buffer must begin at.
    """
    net, shape, at = Network(), (1, 33, 50, 7), 15
    x = relay.var("x", shape=shape)
    value: relay.Expr = x
    for step in range(layers):
        pieces = []
        for on, lo, hi in (("cpu", 0, at), ("gpu", at, shape[1])):
            part = relay.strided_slice(value, [lo], [hi], strides=[1], axes=[1])
            pieces.append(
                net.region(
                    on,
                    lambda p, step=step: relay.nn.relu(p) + relay.const(float(step)),
                    part,
                    shapes=[(1, hi - lo, *shape[2:])],
                )
            )
        value = relay.concatenate(pieces, axis=1)
    return net.finish([x], value), int(np.prod(shape)) * 4


def loaded(mod: tvm.IRModule, path: Path) -> tvm.runtime.Module:
    built = build(mod, tvm.target.Target("llvm"), tvm.target.Target("opencl"))
    return tvm.runtime.load_module(str(built.export(path)))


@pytest.mark.parametrize("sharing", SHARINGS)
def test_halves_of_a_chain_follow_each_other_without_a_wait(tmp_path: Path, sharing: str) -> None:
    held = {}
    for layers in (4, 9):
        mod, size = rows_in_two(layers)
        library = loaded(mod, tmp_path / f"{layers}.so")
        program = json.loads(library["program"]())
        assert program["events"] == 0
        module = CoModule(library, tvm.cpu(), sharing=sharing)
        for seed in range(3):
            given = np.random.default_rng(seed).standard_normal((1, 33, 50, 7)).astype("float32")
            wanted = np.maximum(given, 0) + sum(range(layers))
            np.testing.assert_allclose(module.run({"x": given})[0], wanted, rtol=1e-6)
        held[layers] = module.memory_bytes
    assert held[9].scratch == held[4].scratch
    if sharing == "svm":
        assert held[9].scratch == 0
        # The input, the output, and two tensors in between, however long the chain is.
        assert held[9].tensors == held[4].tensors <= 4 * (size + 256)
    else:
        assert held[9].scratch > 0, "nothing went over memory of its own to meet the device's alignment"


def softmaxes(*extents: int) -> tvm.IRModule:
    """One region on the GPU for each extent, whose kernels need a workspace of that size."""
    net = Network()
    inputs, results = [], []
    for number, extent in enumerate(extents):
        x = relay.var(f"x{number}", shape=(64, extent))
        inputs.append(x)
        results.append(net.region("gpu", lambda p: relay.nn.softmax(p), x, shapes=[(64, extent)]))
    return net.finish(inputs, relay.Tuple(results))


def test_kernels_share_their_workspaces(tmp_path: Path) -> None:
    """As much as the largest call needs, whatever ran before; one after the other, for the queue is in order."""
    held, kept = [], []
    given = np.random.default_rng(0).standard_normal((64, 4096)).astype("float32")
    for number, extents in enumerate(((512,), (512, 512, 512), (256, 4096, 512), (512,))):
        module = CoModule(loaded(softmaxes(*extents), tmp_path / f"{number}.so"), tvm.cpu())
        found = module.run({f"x{i}": np.ascontiguousarray(given[:, :extent]) for i, extent in enumerate(extents)})
        for extent, got in zip(extents, found, strict=True):
            powers = np.exp(given[:, :extent] - given[:, :extent].max(axis=1, keepdims=True))
            np.testing.assert_allclose(got, powers / powers.sum(axis=1, keepdims=True), rtol=1e-4)
        held.append(module.memory_bytes.scratch)
        kept.append(module)
    assert 0 < held[0] == held[1] == held[3] < held[2]


def test_a_library_is_saved_with_weights_that_only_the_gpu_holds() -> None:
    view = {"offset": 0, "shape": [256], "dtype": "float32"}
    program = {
        "format": 2,
        "buffers": [{"bytes": 1024, "space": "gpu"}, {"bytes": 1024, "space": "shared"}],
        "weights": [{"buffer": 0, "name": "w"}],
        "regions": [{"name": "r", "processor": "gpu"}],
        "events": 0,
        "cpu": [],
        "gpu": [
            {"do": "copy", "from": {"buffer": 0, **view}, "to": {"buffer": 1, **view}, "region": 0},
            {"do": "to_cpu", "view": {"buffer": 1, **view}},
        ],
        "inputs": [],
        "outputs": [{"name": "y", "view": {"buffer": 1, **view}}],
    }
    weight = np.arange(256, dtype="float32")
    made = tvm.get_global_func("codl.create_library")(json.dumps(program), "{}", 1, "w", tvm.nd.array(weight))
    saved = tvm.get_global_func("runtime.ModulePackImportsToC")
    before = saved(made, False, "")
    executor = made["create"](0, "auto")
    assert json.loads(executor["memory_bytes"]())["weights"] == weight.nbytes
    executor["run"]()
    found = tvm.nd.empty((256,), "float32")
    executor["get_output"](0, found)
    np.testing.assert_array_equal(found.numpy(), weight)
    assert saved(made, False, "") == before
