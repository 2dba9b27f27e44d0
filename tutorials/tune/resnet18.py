"""ResNet-18: tune its kernels for a phone, measure, plan, and build the library that runs it there."""

from pathlib import Path
from typing import Any

import click

import tvm_codl as codl
from tvm_codl.cli.main import main
from tvm_codl.cli.options import phone_options, tuning_options
from tvm_codl.cli.output import talk


@click.command()
@phone_options
@tuning_options
def resnet18(reach: Any, trials: int, budget: float, output: Path) -> None:
    """Tune ResNet-18 for a phone, and write resnet18.log, resnet18.plan.json and resnet18.so."""
    output.mkdir(parents=True, exist_ok=True)
    kernels = output / "resnet18.log"
    prepared = codl.prepare(codl.load_model("zoo:resnet18"))
    with reach() as phone:
        codl.tune(prepared, phone, kernels, trials=trials, log=talk)
        plan = codl.make_plan(prepared, phone, budget_s=budget, tuning_records=kernels, log=talk)
        codl.dump_plan(plan, output / "resnet18.plan.json")
        codl.build_library(prepared, plan, phone.profile, output / "resnet18.so", talk, kernels)
    talk(f"resnet18: predicted {plan.predicted_ms:.2f} ms")


if __name__ == "__main__":
    main(resnet18, "resnet18.py")
