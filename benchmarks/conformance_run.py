"""One of ONNX's tests: loaded, split, built, run, and compared with the answer that comes with it."""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import onnx
import tvm

from benchmarks.conformance_cases import Case, Example, Value, example
from tvm_codl.device import facts
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import CodlError
from tvm_codl.frontend.load import load_model
from tvm_codl.kernels.toolchain import toolchain
from tvm_codl.measure.plan_libraries import build_library
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator, uniform_plan
from tvm_codl.relay.pipeline import prepare
from tvm_codl.relay.prepared import Prepared
from tvm_codl.runtime.comodule import CoModule

#: Of an output's largest number, or of 1 where that is larger: float32 rounds so.  ONNX's own tests forgive 1e-7.
ATOL = 1e-6
On = Literal["split", "cpu", "gpu", "load"]
End = Literal["right", "refused", "wrong", "traceback"]


class Outcome(msgspec.Struct, frozen=True):
    """How a case ended and in which stage: ``load``, ``split``, ``build``, ``run`` or ``compare``.

    ``reason`` is the first line of an error, the same for all cases that it ends, and ``evidence`` the rest; of a case that is
    right, what one processor's compiler left to the other.  ``plan`` names the plan: ``split``, ``cpu`` or ``gpu``.
    """

    name: str
    kind: str
    end: End
    stage: str = ""
    reason: str = ""
    evidence: str = ""
    plan: str = ""


def run_case(case: Case, on: On = "split") -> Outcome:
    """``on``: the first plan to build, or ``load`` to end after loading and finding the operators."""
    stage = ["load"]
    try:
        given = example(case)
        return _run(case, given, on, stage)
    except CodlError as error:
        words = error.what.replace(f"{case.name}.onnx", "MODEL").replace(case.name, "MODEL")
        return Outcome(case.name, case.kind, "refused", stage[0], words, error.evidence)
    except AssertionError as error:
        if stage[0] != "compare":
            return _traceback(case, stage[0], error)
        lines = [line for line in str(error).splitlines() if line.strip()]
        return Outcome(case.name, case.kind, "wrong", "compare", "differs from ONNX's answer", "; ".join(lines[:4]))
    except Exception as error:
        return _traceback(case, stage[0], error)


def _traceback(case: Case, stage: str, error: Exception) -> Outcome:
    lines = str(error).strip().splitlines() or [""]
    words = f"{type(error).__name__}: {lines[-1]}"
    return Outcome(case.name, case.kind, "traceback", stage, words[:200], traceback.format_exc()[-3000:])


def _run(case: Case, given: Example, on: On, stage: list[str]) -> Outcome:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / f"{case.name}.onnx"
        onnx.save(given.model, path)
        prepared = prepare(load_model(str(path), _shapes(given)))
        if on == "load":
            return Outcome(case.name, case.kind, "right", "load")
        stage[0] = "build"
        plan = _halves(prepared) if on == "split" else uniform_plan(prepared.graph, on, on)
        profile = _profile()
        words: list[str] = []
        library = folder / "library.so"
        build_library(prepared, plan, profile, toolchain(profile), library, words.append, _open)
        module = _open(library)
        stage[0] = "run"
        outputs = module.run({port.name: np.asarray(given.inputs[port.name]) for port in module.inputs})
        stage[0] = "compare"
        _compare(outputs, given.outputs, case)
        moved = "; ".join(line for line in words if "since the" in line)
        return Outcome(case.name, case.kind, "right", "compare", moved, plan=plan.model)


def _shapes(given: Example) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs for which the file has none."""
    dynamic = {
        v.name for v in given.model.graph.input for dim in v.type.tensor_type.shape.dim if not dim.HasField("dim_value")
    }
    return {name: np.shape(given.inputs[name]) for name in dynamic}


def _halves(prepared: Prepared) -> Plan:
    """Every operator cut in the middle of its longest axis, where it has one, and the others on each processor in turn."""
    lines = []
    for operator in prepared.graph.operators:
        axes = [axis for axis in prepared.axes[operator.id].values() if axis.extent > axis.granule]
        if axes:
            axis = max(axes, key=lambda axis: axis.extent // axis.granule)
            on = Placement("split", axis.name, max(1, axis.extent // axis.granule // 2) * axis.granule)
        else:
            on = Placement("cpu" if operator.id % 2 else "gpu")
        lines.append(PlannedOperator(operator.id, operator.name, on))
    return Plan("split", "", tuple(lines))


def _open(library: Path) -> CoModule:
    """Under a name of its own: the loader gives a library again that it has loaded by that name."""
    own = library.with_name(f"{time.time_ns()}.so")
    shutil.copyfile(library, own)
    return CoModule(tvm.runtime.load_module(str(own)), tvm.cpu())


@cache
def _profile() -> DeviceProfile:
    """This process as the reference phone."""
    return facts.profile()


def _compare(outputs: list[np.ndarray], wanted: list[Value], case: Case) -> None:
    assert len(outputs) == len(wanted), f"{len(outputs)} outputs, not {len(wanted)}"
    for got, want in zip(outputs, wanted, strict=True):
        assert isinstance(want, np.ndarray), "an output that is no tensor"
        assert (got.shape, got.dtype) == (want.shape, want.dtype), (
            f"{got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
        )
        np.testing.assert_allclose(got, want, rtol=case.rtol, atol=max(case.atol, _rounding(want)))


def _rounding(want: np.ndarray) -> float:
    if want.dtype.kind not in "fc":
        return ATOL
    finite = np.abs(want[np.isfinite(want)])
    return ATOL * max(1.0, float(finite.max(initial=0.0)))
