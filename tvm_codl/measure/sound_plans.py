"""Plans whose answers on the phone are right, every time; what is not is recorded and never used.

Before a plan may win, its library runs many times where a GPU kernel in it, by its source and work-group, has not been checked on that
phone.  If an answer is wrong or unsteady, the operator to blame is found by halves: the rest of the plan moves to the CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from tvm_codl.errors import UserError
from tvm_codl.measure.answers import FLOAT16_TOLERANCE, TOLERANCE, find_fault
from tvm_codl.measure.checked_kernels import CheckedKernels, Fault
from tvm_codl.measure.context import Context
from tvm_codl.measure.plan_libraries import kernels_of, libraries_for, open_library
from tvm_codl.plan.plan import Placement, Plan
from tvm_codl.records.record import Piece, Record
from tvm_codl.records.workload import Workload
from tvm_codl.relay.prepared import Prepared
from tvm_codl.runtime.comodule import CoModule

#: Whether a plan with only these operators on the GPU has a fault.
Test = Callable[[Sequence[int]], Fault | None]


class Soundness:
    """Checks the libraries of one network's plans on a phone."""

    def __init__(self, prepared: Prepared, context: Context) -> None:
        self.prepared, self.context = prepared, context
        self.known = CheckedKernels(context.profile)

    def fault(self, plan: Plan, module: CoModule) -> Fault | None:
        """What is wrong with a plan's answers, found now or before; None where they are right.  ``module`` is its library."""
        on_gpu = [o.operator for o in plan.operators if o.placement.on != "cpu"]
        if not on_gpu:  # LLVM compiles for the CPU, here as there
            return None
        path = self._library(plan)
        kernels, fault = kernels_of(path), self.known.faults.get(path.stem)
        if fault is None:
            if self.known.knows(kernels):
                return None
            fault = self._found(plan, module)
            if fault is None:
                self.known.keep_right(kernels)
                return None
            self.known.keep_fault(path.stem, fault)
            self._blame(plan, on_gpu)
        return fault

    def _library(self, plan: Plan) -> Path:
        return libraries_for(self.prepared, {"": plan}, self.context.tools, self.context.log)[""]

    def _found(self, plan: Plan, module: CoModule) -> Fault | None:
        tolerance = FLOAT16_TOLERANCE if plan.settings.gpu_float == "float16" else TOLERANCE
        return find_fault(module, self.prepared.samples, self.prepared.answers, tolerance, self.prepared.quanta)

    def _blame(self, plan: Plan, on_gpu: Sequence[int]) -> None:
        """Records the fault for the operator's piece on the GPU, so that no plan puts it there again."""

        def test(kept: Sequence[int]) -> Fault | None:
            tried = replace(plan, operators=tuple(
                o if o.operator in kept else replace(o, placement=Placement("cpu"), chain=-1) for o in plan.operators
            ))  # fmt: skip
            try:
                library = self._library(tried)
            except UserError:  # a half that TVM does not compile is not to blame for an answer
                return None
            return self._found(tried, open_library(library, self.context.phone))

        found = to_blame(on_gpu, test)
        if found is None:
            self.context.log("no single operator is to blame: only this plan is not used")
            return
        id, fault = found
        place = next(o.placement for o in plan.operators if o.operator == id)
        graph, known, context = self.prepared.graph, self.prepared.axes.get(id, {}), self.context
        operator = next(o for o in graph.operators if o.id == id)
        words = f"its answer is {fault.name}: {fault.words}"
        context.log(f"operator {id} ({operator.name}) is not used on the GPU, {words}")
        lo, hi = next((lo, hi) for on, lo, hi in place.pieces(known) if on == "gpu")
        piece = Piece(operator.kind, place.axis, lo, hi, known[place.axis].extent if place.axis else 0)
        key = Workload.of(operator, graph, place.axis, lo, hi).key
        record = Record(
            key, piece, "gpu", context.device, context.tools.kernel_id, (), time.time(), "alone", words, fault.error_no
        )  # fmt: skip
        context.store.add([record])


def to_blame(operators: Sequence[int], test: Test) -> tuple[int, Fault] | None:
    """One operator that has the fault by itself, found by halves; None where no half has it."""
    while len(operators) > 1:
        half = len(operators) // 2
        operators = next((part for part in (operators[:half], operators[half:]) if test(part) is not None), ())
    fault = test(operators) if operators else None
    return None if fault is None else (operators[0], fault)
