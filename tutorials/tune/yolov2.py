"""YOLOv2: a large network, whose kernels take long to tune; after planning, the pieces that the plan uses are tuned too."""

from pathlib import Path

import click

import tvm_codl as codl
from tvm_codl.cli.main import main
from tvm_codl.cli.options import PhoneChoice, phone_options, tuning_options
from tvm_codl.cli.output import talk


@click.command()
@phone_options
@tuning_options
def yolov2(phone: PhoneChoice, trials: int, budget: float, output: Path) -> None:
    """Tune YOLOv2 for a phone, then the pieces of its plan, and write yolov2.log, yolov2.plan.json and yolov2.so."""
    output.mkdir(parents=True, exist_ok=True)
    kernels = output / "yolov2.log"
    prepared = codl.prepare(codl.load_model("zoo:yolov2"))
    with phone.connect() as session:
        session.tune(prepared, kernels, trials=trials)
        session = session.with_tuning(kernels)
        plan = session.plan(prepared, budget)
        session.tune(prepared, kernels, trials=trials, plan=plan)
        session = session.with_tuning(kernels)
        codl.dump_plan(plan, output / "yolov2.plan.json")
        session.build(prepared, plan, output / "yolov2.so")
    talk(f"yolov2: predicted {plan.predicted_ms:.2f} ms")


if __name__ == "__main__":
    main(yolov2, "yolov2.py")
