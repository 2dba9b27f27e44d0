"""MobileNetV2: the same as resnet18.py for a network of depthwise convolutions, and then what was gained, measured."""

from pathlib import Path

import click

import tvm_codl as codl
from tvm_codl.cli.main import main
from tvm_codl.cli.options import PhoneChoice, phone_options, tuning_options
from tvm_codl.cli.output import talk


@click.command()
@phone_options
@tuning_options
def mobilenet_v2(phone: PhoneChoice, trials: int, budget: float, output: Path) -> None:
    """Tune MobileNetV2 for a phone, write mobilenet_v2.log, .plan.json and .so, and compare with each processor alone."""
    output.mkdir(parents=True, exist_ok=True)
    kernels = output / "mobilenet_v2.log"
    prepared = codl.prepare(codl.load_model("zoo:mobilenet_v2"))
    with phone.connect() as session:
        session.tune(prepared, kernels, trials=trials)
        session = session.with_tuning(kernels)
        plan = session.plan(prepared, budget)
        codl.dump_plan(plan, output / "mobilenet_v2.plan.json")
        session.build(prepared, plan, output / "mobilenet_v2.so")
        report = session.bench(prepared, plan=plan)
    talk(f"mobilenet_v2: {report.coexec_ms.median:.2f} ms; {report.ratios}")


if __name__ == "__main__":
    main(mobilenet_v2, "mobilenet_v2.py")
