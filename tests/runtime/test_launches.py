"""What kernels ask of a GPU is read while they are lowered."""

from __future__ import annotations

import pytest
import tvm
from tvm import te

from tvm_codl.build.dataflow import Argument, Dataflow, Region, Root, Value
from tvm_codl.build.launches import Launch, make_recorder
from tvm_codl.build.library import build_dataflow
from tvm_codl.build.limits import Limits, OverLimits, check


def blocks_of(threads: tuple[int, int], shared: bool) -> dict[str, list[Launch]]:
    """What is recorded of a matrix's copy by work-groups of that size, through local memory or not."""
    a = te.placeholder((64, 64), name="a")
    b = te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="b")
    schedule = te.create_schedule(b.op)
    cached = schedule.cache_read(a, "shared", [b]) if shared else None
    (y, ty), (x, tx) = (schedule[b].split(axis, n) for axis, n in zip(b.op.axis, threads, strict=True))
    schedule[b].reorder(y, x, ty, tx)
    for axis, tag in ((y, "blockIdx.y"), (x, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        schedule[b].bind(axis, te.thread_axis(tag))
    if cached is not None:
        schedule[cached].compute_at(schedule[b], x)
        for axis, n, tag in zip(schedule[cached].op.axis, threads, ("threadIdx.y", "threadIdx.x"), strict=True):
            _, inner = schedule[cached].split(axis, n)
            schedule[cached].bind(inner, te.thread_axis(tag))
    found: dict[str, list[Launch]] = {}
    with tvm.transform.PassContext(opt_level=3, config={"tir.add_lower_pass": [make_recorder(found)]}):
        tvm.lower(schedule, [a, b], name="copied")
    return found


@pytest.mark.parametrize("threads", [(1, 1), (4, 16), (32, 64)])
@pytest.mark.parametrize("shared", [False, True])
def test_work_group_and_local_memory(threads: tuple[int, int], shared: bool) -> None:
    size = threads[0] * threads[1]
    assert blocks_of(threads, shared) == {"copied": [Launch(size, 4 * size if shared else 0, 64 * 64 // size)]}


def test_several_kernels_of_one_function_are_several_launches() -> None:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((64,), lambda i: b[63 - i] * 2.0, name="c")
    schedule = te.create_schedule(c.op)
    for stage, threads in ((b, 8), (c, 32)):
        block, thread = schedule[stage].split(stage.op.axis[0], threads)
        schedule[stage].bind(block, te.thread_axis("blockIdx.x"))
        schedule[stage].bind(thread, te.thread_axis("threadIdx.x"))
    found: dict[str, list[Launch]] = {}
    with tvm.transform.PassContext(opt_level=3, config={"tir.add_lower_pass": [make_recorder(found)]}):
        tvm.lower(schedule, [a, b, c], name="two")
    assert found == {"two": [Launch(8, 0, 8), Launch(32, 0, 2)]}


def test_a_library_knows_its_regions_launches(opencl: None) -> None:
    """A rectifier on each processor: only the GPU's has launches, and a device that allows no such group refuses it."""
    x = tvm.relay.var("x", shape=(1, 512))
    function = tvm.relay.Function([x], tvm.relay.nn.relu(x))
    function = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
    roots = [Root((1, 512), "float32") for _ in range(4)]
    regions = [
        Region("on_cpu", "cpu", "0", function, [Argument(Value(0))], [Value(1)]),
        Region("on_gpu", "gpu", "1", function, [Argument(Value(2))], [Value(3)]),
    ]
    target = tvm.target.Target("opencl -max_num_threads=256", host="llvm")
    library = build_dataflow(Dataflow(roots, regions, [], []), tvm.target.Target("llvm"), target)
    (cpu, gpu) = library.launches
    assert cpu == ()
    assert len(gpu) == 1
    assert 1 < gpu[0].work_group <= 256
    check(library.launches, Limits(work_group=256))
    with pytest.raises(OverLimits) as error:
        check(library.launches, Limits(work_group=gpu[0].work_group - 1))
    assert set(error.value.offenders) == {1}
