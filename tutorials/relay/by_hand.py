"""A Relay module, through each pass by hand, to a library that both processors of a phone run together."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
import tvm
from tvm import relay
from tvm.contrib import ndk
from tvm.relay import testing

import tvm_codl as codl
from tvm_codl.build.library import build
from tvm_codl.cli.main import main
from tvm_codl.cli.options import PhoneChoice, phone_options
from tvm_codl.cli.output import talk
from tvm_codl.errors import CheckFailed, UserError
from tvm_codl.frontend.reference import reference_outputs
from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import axes
from tvm_codl.plan.candidates import legal_cuts
from tvm_codl.plan.plan import PlannedOperator

Network = tuple[tvm.IRModule, Mapping[str, Any]]

#: The largest relative error: float32 sums in another order.
ALLOWED = 1e-3


def from_testing() -> Network:
    """One of Relay's own networks: NCHW, batch normalisation and softmax as they are written."""
    return testing.resnet.get_workload(num_layers=8, num_classes=10, image_shape=(3, 28, 28))


def own() -> Network:
    """A network that somebody wrote in Relay: two branches, NHWC, a batch that is not fixed."""
    x = relay.var("image", shape=(relay.Any(), 24, 24, 3))
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    fine = relay.nn.conv2d(x, relay.var("fine", shape=(3, 3, 3, 16)), padding=(1, 1), kernel_size=(3, 3), **layout)
    wide = relay.nn.conv2d(x, relay.var("wide", shape=(5, 5, 3, 16)), padding=(2, 2), kernel_size=(5, 5), **layout)
    y = relay.nn.relu(relay.concatenate([fine, wide], axis=3))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y, layout="NHWC"))
    body = relay.nn.softmax(relay.nn.dense(y, relay.var("classes", shape=(10, 32))))
    random = np.random.default_rng(0)
    sizes = {"fine": (3, 3, 3, 16), "wide": (5, 5, 3, 16), "classes": (10, 32)}
    weights = {name: random.standard_normal(size).astype("float32") for name, size in sizes.items()}
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)), weights


def from_torch() -> Network:
    """A network of PyTorch's, traced."""
    try:
        import torch
    except ImportError as error:
        raise UserError("the network torch needs PyTorch", str(error), "pip install torch") from error
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 12 * 12, 10),
    )
    shape = (1, 3, 24, 24)
    traced = torch.jit.trace(network.eval(), torch.zeros(shape))
    return relay.frontend.from_pytorch(traced, [("image", shape)])


#: By name, the network and the shapes of its inputs that are not fixed.
NETWORKS = {"resnet": (from_testing, {}), "own": (own, {"image": (1, 24, 24, 3)}), "torch": (from_torch, {})}


def halves(graph: OpGraph, name: str) -> codl.Plan:
    """Every operator split in the middle of its first axis, where it has one."""
    lines = []
    for operator in graph.operators:
        placement = codl.Placement("cpu")
        for axis in axes(operator, graph).values():
            if cuts := legal_cuts(axis):
                placement = codl.Placement("split", axis.name, cuts[len(cuts) // 2])
                break
        lines.append(PlannedOperator(operator.id, operator.name, placement))
    return codl.Plan(name, "by hand", tuple(lines))


def partition(mod: tvm.IRModule, name: str) -> tuple[tvm.IRModule, codl.Plan]:
    """What each processor runs.  ``mod`` has its weights as constants and static shapes."""
    with tvm.transform.PassContext(opt_level=3, config=codl.pipeline.CONFIG):
        simple = tvm.transform.Sequential([*codl.pipeline.SIMPLIFY, *codl.pipeline.NHWC])(mod)
        graph, _, prepared = codl.extract(simple)
        plan = halves(graph, name)
        passes = [codl.AnnotateCoExecution(plan), codl.PartitionCoExecution(), relay.transform.InferType()]
        return tvm.transform.Sequential(passes)(prepared), plan


def bind(mod: tvm.IRModule, params: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> tvm.IRModule:
    """``mod`` with its weights as constants, and its inputs of these shapes."""
    main = relay.build_module.bind_params_by_name(mod["main"], {k: tvm.nd.array(v) for k, v in params.items()})
    fixed = [relay.var(v.name_hint, shape=shapes.get(v.name_hint, v.type_annotation.shape)) for v in main.params]
    body = relay.bind(main.body, dict(zip(main.params, fixed, strict=True)))
    return tvm.IRModule.from_expr(relay.Function(fixed, body))


@click.command()
@click.argument("network", type=click.Choice(list(NETWORKS)), default="resnet")
@phone_options
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), default=".", show_default=True,
    help="Folder of the library.",
)  # fmt: skip
def by_hand(network: str, phone: PhoneChoice, output: Path) -> None:
    """Take NETWORK (resnet, own or torch) from Relay to NETWORK.so, run it on a phone and check the answer."""
    if "TVM_NDK_CC" not in os.environ:
        raise UserError("TVM_NDK_CC names no compiler", next="TVM_NDK_CC=g++ links for a phone on this machine")
    make, shapes = NETWORKS[network]
    mod, params = make()
    partitioned, plan = partition(bind(mod, params, shapes), network)
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"{network}.so"
    model = codl.from_relay(mod, params, inputs=shapes, name=network)
    inputs = model.sample_inputs()
    wanted = reference_outputs(model, inputs)
    with phone.connect() as session:
        with session.tools.scheduled():
            library = build(partitioned, session.tools.cpu, session.tools.gpu, msgspec.to_builtins(plan), model.outputs)
        library.module.export_library(str(path), fcompile=ndk.create_shared)
        found = session.open(path).run(inputs)
    error = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, wanted, strict=True))
    if not error <= ALLOWED:
        raise CheckFailed(
            f"the answer of {network} is not TVM's", f"relative error {error:.2e}, {ALLOWED:g} is allowed"
        )
    split = sum(line.placement.on == "split" for line in plan.operators)
    talk(f"{network}: agrees with TVM's executor, relative error {error:.1e}")
    click.echo(f"{path}: {split} of {len(plan.operators)} operators on both processors")


if __name__ == "__main__":
    main(by_hand, "by_hand.py")
