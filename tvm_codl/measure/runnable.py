"""Plans whose every piece compiles: what one processor's compiler rejects goes to the other processor.

OpenCL lacks functions that LLVM has (``acos``), a GPU may lack float16, and LLVM fails at what OpenCL takes.  Only where a
library does not build are its pieces compiled apart, by halves, to find those to blame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from tvm_codl.build.limits import Limits
from tvm_codl.build.pool import Outcome
from tvm_codl.device.profile import DeviceProfile
from tvm_codl.errors import KernelRejected, UserError, WorkplaceError
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.kernels.toolchain import Toolchain
from tvm_codl.measure.context import Log
from tvm_codl.measure.libraries import build_libraries
from tvm_codl.measure.probe import Probe, whole_probes
from tvm_codl.plan.plan import Placement, Plan, PlannedOperator
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload
from tvm_codl.relay.prepared import Prepared

Plans = dict[str, Plan]
#: Why an operator does not compile, by its id and the processor.
Rejected = dict[tuple[int, Processor], str]
#: Builds one library of each group of pieces.
Build = Callable[[Sequence[Sequence[Probe]]], Sequence[Outcome]]

_OTHER: dict[Processor, Processor] = {"cpu": "gpu", "gpu": "cpu"}
_SHOWN = 5


def runnable(
    prepared: Prepared,
    plans: Mapping[str, Plan],
    profile: DeviceProfile,
    tools: Toolchain,
    log: Log,
    attempt: Callable[[Plans], object],
    open: Callable[[Path], object] = lambda path: None,
) -> Plans:
    """``plans`` with what does not compile moved to the other processor.

    ``attempt`` builds their libraries (and opens them), or raises; ``open`` opens one on the phone, whose compiler may reject
    what the host's took.  The log gets one line for what moved.  Raises :class:`UserError` that lists the operators which
    compile for neither processor, and ``attempt``'s own error where no operator is to blame.
    """
    rejected = without_float16(prepared.graph) if profile.cpu_cores and not profile.float16 else {}
    placed = moved(plans, rejected)
    try:
        attempt(placed)
    except WorkplaceError:
        raise
    except (UserError, KernelRejected) as failure:
        limits = Limits(profile.max_work_group, profile.local_memory)

        def build(groups: Sequence[Sequence[Probe]]) -> Sequence[Outcome]:
            made = build_libraries(prepared.graph, prepared.weights, tools, limits, groups)
            return [_opened(each, open) for each in made]

        log(f"{failure.what}: looking for the operators to blame")
        found = find_rejected(prepared, placed.values(), build)
        if not found:
            raise
        rejected = rejected | found
        _check_somewhere(prepared.graph, rejected)
        placed = moved(placed, rejected)
        attempt(placed)
    if placed != dict(plans):
        log(_words(prepared.graph, rejected))
    return placed


def _opened(made: Outcome, open: Callable[[Path], object]) -> Outcome:
    try:
        if made.path is not None:
            open(made.path)
    except KernelRejected as error:
        return Outcome(None, error.evidence)
    return made


def without_float16(graph: OpGraph) -> Rejected:
    """The operators that a GPU without float16 cannot run."""
    return {(o.id, "gpu"): "the GPU has no float16" for o in graph.operators if "float16" in _types(o, graph)}


def find_rejected(prepared: Prepared, plans: Iterable[Plan], build: Build) -> Rejected:
    """The operators of which ``build`` rejects a piece of the plans; of these, whether it rejects the whole elsewhere too."""
    graph = prepared.graph
    operators = {o.id: o for o in graph.operators}
    pieces: dict[tuple[str, Processor], Probe] = {}
    owners: dict[tuple[str, Processor], set[int]] = {}
    for line in (line for plan in plans for line in plan.operators):
        axis = line.placement.axis
        for on, lo, hi in line.placement.pieces(prepared.axes.get(line.operator, {})):
            key = Workload.of(operators[line.operator], graph, axis, lo, hi).key
            pieces.setdefault((key, on), Probe(line.operator, on, key, axis, lo, hi))
            owners.setdefault((key, on), set()).add(line.operator)
    blamed = to_blame(list(pieces.values()), build)
    rejected: Rejected = {(id, on): words for (key, on), words in blamed.items() for id in owners[key, on]}
    wholes = {o.id: Workload.of(o, graph).key for o in graph.operators}
    elsewhere = {(wholes[id], _OTHER[on]) for id, on in rejected}
    again = to_blame([p for p in whole_probes(graph) if (p.key, p.processor) in elsewhere], build)
    both = {(id, _OTHER[on]): again[wholes[id], _OTHER[on]] for id, on in rejected if (wholes[id], _OTHER[on]) in again}
    return rejected | both


def to_blame(probes: Sequence[Probe], build: Build) -> dict[tuple[str, Processor], str]:
    """Why pieces do not build, by workload and processor; groups that fail are halved until each piece stands alone."""
    groups, found = [list(probes)] if probes else [], {}
    while groups:
        failed = [(group, made) for group, made in zip(groups, build(groups), strict=True) if made.path is None]
        groups = []
        for group, made in failed:
            if len(group) == 1:
                found[group[0].key, group[0].processor] = made.error
            else:
                groups += [group[: len(group) // 2], group[len(group) // 2 :]]
    return found


def moved(plans: Mapping[str, Plan], rejected: Rejected) -> Plans:
    """The plans, each operator with a part on a processor that rejects it whole on the other."""

    def place(line: PlannedOperator) -> PlannedOperator:
        for on, other in _OTHER.items():
            if (line.operator, on) in rejected and line.placement.on in (on, "split"):
                why = f"it does not compile for the {on}: {rejected[line.operator, on]}"
                return replace(line, placement=Placement(other), chain=-1, reason=why)
        return line

    return {name: replace(plan, operators=tuple(map(place, plan.operators))) for name, plan in plans.items()}


def _check_somewhere(graph: OpGraph, rejected: Rejected) -> None:
    nowhere = [o for o in graph.operators if (o.id, "cpu") in rejected and (o.id, "gpu") in rejected]
    if nowhere:
        raise UserError(
            f"operators that compile for neither processor: {', '.join(sorted({o.kind for o in nowhere}))}",
            "; ".join(f"operator {o.id} ({o.name}): {rejected[o.id, 'cpu']}" for o in nowhere[:_SHOWN]),
            "export the model with other operators; tvm-codl check --list says what is supported",
        )


def _words(graph: OpGraph, rejected: Rejected) -> str:
    parts = []
    for on, other in _OTHER.items():
        kinds = sorted({o.kind for o in graph.operators if (o.id, on) in rejected})
        if kinds:
            why = next(words for (_, processor), words in rejected.items() if processor == on)
            more = ", ..." if len(kinds) > _SHOWN else ""
            parts.append(f"{', '.join(kinds[:_SHOWN])}{more}: on the {other}, since the {on} does not take them: {why}")
    return "; ".join(parts)


def _types(operator: Operator, graph: OpGraph) -> set[str]:
    tensors = {graph.tensors[id].dtype for id in (*operator.inputs, *operator.outputs)}
    return tensors | {node.dtype for node in operator.body} | {const.dtype for const in operator.consts}
