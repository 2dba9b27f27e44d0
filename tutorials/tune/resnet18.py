"""ResNet-18: tune its kernels for a phone, measure, plan, and build the library that runs it there."""

from pathlib import Path

import click

import tvm_codl as codl
from tvm_codl.cli.main import main
from tvm_codl.cli.options import PhoneChoice, phone_options, tuning_options
from tvm_codl.cli.output import talk


@click.command()
@phone_options
@tuning_options
def resnet18(phone: PhoneChoice, trials: int, budget: float, output: Path) -> None:
    """Tune ResNet-18 for a phone, and write resnet18.log, resnet18.plan.json and resnet18.so."""
    output.mkdir(parents=True, exist_ok=True)
    kernels = output / "resnet18.log"
    prepared = codl.prepare(codl.load_model("zoo:resnet18"))
    with phone.connect() as session:
        session.tune(prepared, kernels, trials=trials)
        session = session.with_tuning(kernels)
        plan = session.plan(prepared, budget)
        codl.dump_plan(plan, output / "resnet18.plan.json")
        session.build(prepared, plan, output / "resnet18.so")
    talk(f"resnet18: predicted {plan.predicted_ms:.2f} ms")


if __name__ == "__main__":
    main(resnet18, "resnet18.py")
