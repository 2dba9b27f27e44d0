"""``tvm-codl build``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tvm_codl.cli.options import json_option, load, measuring_options, model_options, named_plan, phone_options
from tvm_codl.cli.output import print_json, talk
from tvm_codl.cli.output_file import OUTPUT_FILE
from tvm_codl.errors import UsageError
from tvm_codl.runtime.platforms import NAMES

#: Platforms that this machine is not: a library for one can be built without its phone.
PHONES = tuple(name for name in NAMES if name != "host")


@click.command()
@model_options
@phone_options
@measuring_options
@click.option(
    "--plan", "given", default="", metavar="PLAN", help="A plan file, cpu-only or gpu-only.  [default: make one]"
)
@click.option(
    "--adaptive", is_flag=True, help="Also carry plans for a busy CPU and a throttled GPU, and switch at run time."
)
@click.option(
    "--target", type=click.Choice(NAMES), help="What the library is built for.  [default: the phone's platform]"
)
@click.option("-o", "--output", type=OUTPUT_FILE, default=Path("model.so"), show_default=True)
@json_option
def command(
    source: str, shape: Any, reach: Any, budget: float, records: Path | None, tuning_records: Path | None,
    given: str, adaptive: bool, target: str | None, output: Path, as_json: bool,
) -> None:  # fmt: skip
    """Build one shared library that runs MODEL (an ONNX file or zoo:NAME) on both processors of the phone.

    With an arm64 --target and no phone named, it is built for any phone of that kind, and needs a --plan.
    """
    unknown = target in PHONES and not any(
        click.get_current_context().params[x] for x in ("local", "rpc_tracker", "rpc_proxy")
    )
    if unknown and (adaptive or not given):
        raise UsageError(
            f"a plan for {target} is made by measuring a phone, and none is named",
            "--adaptive needs one too" if adaptive else "neither --rpc-tracker, nor --rpc-proxy, nor --plan is given",
            "name the phone: --rpc-tracker HOST:PORT --rpc-key KEY; or a plan: --plan FILE, cpu-only or gpu-only",
        )
    model = load(source, shape)
    from tvm_codl.device.generic import check_platform, generic_profile
    from tvm_codl.measure.workflow import build_library, make_adaptive, make_plan, prepare

    prepared = prepare(model)
    plan = named_plan(given, prepared) if given else None
    if unknown:
        assert plan is not None and target is not None
        profile = generic_profile(target)
        path = build_library(prepared, plan, profile, output, talk, tuning_records)
        _say(path, prepared.name, profile.name, [], as_json)
        return
    with reach() as phone:
        if target:
            check_platform(target, phone.profile)
        states = (
            make_adaptive(
                prepared, phone, plan=plan, budget_s=budget, log=talk, records=records, tuning_records=tuning_records
            )
            if adaptive
            else ()
        )
        if states:
            plan = states[0].plan
        elif plan is None:
            plan = make_plan(prepared, phone, budget_s=budget, log=talk, records=records, tuning_records=tuning_records)
        path = build_library(prepared, plan, phone.profile, output, talk, tuning_records, states)
        device = phone.profile.name
    _say(path, prepared.name, device, [one.name for one in states], as_json)


def _say(path: Path, model: str, device: str, plans: list[str], as_json: bool) -> None:
    if as_json:
        about = {"library": str(path), "bytes": path.stat().st_size, "model": model, "device": device}
        print_json({**about, **({"plans": plans} if plans else {})})
    else:
        click.echo(path)
