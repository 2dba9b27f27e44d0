"""PP-OCRv4 text detection, a trained network with a dynamic input: tuned for one size, built, and run on a picture."""

from pathlib import Path

import click
import numpy as np

import tvm_codl as codl
from tvm_codl.cli.main import main
from tvm_codl.cli.options import PhoneChoice, phone_options, tuning_options
from tvm_codl.cli.output import talk


@click.command()
@phone_options
@tuning_options
def ppocr_det(phone: PhoneChoice, trials: int, budget: float, output: Path) -> None:
    """Tune PP-OCRv4 text detection at 320 × 320 for a phone, write ppocr_det.log, .plan.json and .so, and run it."""
    output.mkdir(parents=True, exist_ok=True)
    kernels = output / "ppocr_det.log"
    model = codl.load_model("zoo:ppocr_det", {"x": (1, 3, 320, 320)})
    prepared = codl.prepare(model)
    with phone.connect() as session:
        session.tune(prepared, kernels, trials=trials)
        session = session.with_tuning(kernels)
        plan = session.plan(prepared, budget)
        codl.dump_plan(plan, output / "ppocr_det.plan.json")
        library = session.build(prepared, plan, output / "ppocr_det.so")
        (text,) = session.open(library).run(model.sample_inputs())
    talk(f"ppocr_det: predicted {plan.predicted_ms:.2f} ms; {np.mean(text > 0.3):.1%} of the picture is text")


if __name__ == "__main__":
    main(ppocr_det, "ppocr_det.py")
