"""``tvm-codl build``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import PhoneChoice, effort, named_plan, planning_options, read_network
from tvm_codl.cli.output import print_json, talk
from tvm_codl.cli.output_file import OUTPUT_FILE
from tvm_codl.errors import UsageError
from tvm_codl.runtime.platforms import NAMES

#: Platforms that this machine is not: a library for one can be built without its phone.
PHONES = tuple(name for name in NAMES if name != "host")


@click.command()
@planning_options
@click.option(
    "--adaptive", is_flag=True, help="Also carry plans for a busy CPU and a throttled GPU, and switch at run time."
)
@click.option(
    "--target", type=click.Choice(NAMES), help="What the library is built for.  [default: the phone's platform]"
)
@click.option("-o", "--output", type=OUTPUT_FILE, default=Path("model.so"), show_default=True)
def command(
    source: str, shape: Any, phone: PhoneChoice, budget: float, given: str, adaptive: bool, target: str | None, output: Path, as_json: bool,
) -> None:  # fmt: skip
    """Build one shared library that runs MODEL (an ONNX or TFLite file, or zoo:NAME) on both processors of the phone.

    With an arm64 --target and no phone named, it is built for any phone of that kind, and needs a --plan.
    """
    unknown = target in PHONES and not phone.named and not click.get_current_context().params["local"]
    if unknown and (adaptive or not given):
        raise UsageError(
            f"a plan for {target} is made by measuring a phone, and none is named",
            "--adaptive needs one too" if adaptive else "neither --rpc-tracker, nor --rpc-proxy, nor --plan is given",
            "name the phone: --rpc-tracker HOST:PORT --rpc-key KEY; or a plan: --plan FILE, cpu-only or gpu-only",
        )
    prepared = read_network(source, shape)
    from tvm_codl.device.generic import check_platform, generic_profile
    from tvm_codl.kernels.toolchain import toolchain
    from tvm_codl.measure.plan_libraries import build_library

    plan = named_plan(given, prepared) if given else None
    if unknown:
        assert plan is not None and target is not None
        profile = generic_profile(target)
        path = build_library(prepared, plan, profile, toolchain(profile, phone.tuning_records), output, talk)
        _say(path, prepared.name, profile.name, [], as_json)
        return
    with phone.connect() as session:
        if target:
            check_platform(target, session.profile)
        states = session.plan_adaptive(prepared, budget, plan) if adaptive else ()
        plan = states[0].plan if states else plan or session.plan(prepared, budget, **effort())
        path = session.build(prepared, plan, output, states)
        device = session.device
    _say(path, prepared.name, device, [state.name for state in states], as_json)


def _say(path: Path, model: str, device: str, plans: list[str], as_json: bool) -> None:
    if as_json:
        about = {"library": str(path), "bytes": path.stat().st_size, "model": model, "device": device}
        print_json({**about, **({"plans": plans} if plans else {})})
    else:
        click.echo(path)
