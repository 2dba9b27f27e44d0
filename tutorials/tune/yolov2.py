"""YOLOv2: a large network, whose kernels take long to tune; after planning, the pieces that the plan uses are tuned too."""

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
def yolov2(reach: Any, trials: int, budget: float, output: Path) -> None:
    """Tune YOLOv2 for a phone, then the pieces of its plan, and write yolov2.log, yolov2.plan.json and yolov2.so."""
    output.mkdir(parents=True, exist_ok=True)
    kernels = output / "yolov2.log"
    prepared = codl.prepare(codl.load_model("zoo:yolov2"))
    with reach() as phone:
        codl.tune(prepared, phone, kernels, trials=trials, log=talk)
        plan = codl.make_plan(prepared, phone, budget_s=budget, tuning_records=kernels, log=talk)
        codl.tune(prepared, phone, kernels, trials=trials, plan=plan, log=talk)
        codl.dump_plan(plan, output / "yolov2.plan.json")
        codl.build_library(prepared, plan, phone.profile, output / "yolov2.so", talk, kernels)
    talk(f"yolov2: predicted {plan.predicted_ms:.2f} ms")


if __name__ == "__main__":
    main(yolov2, "yolov2.py")
