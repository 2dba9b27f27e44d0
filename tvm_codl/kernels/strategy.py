"""Which of our kernels serves which Relay operator, for targets with our key."""

from __future__ import annotations

import math
import re
from typing import Any

import tvm
from tvm import relay, te, topi
from tvm.relay.op import op as registry
from tvm.relay.op import strategy as stock
from tvm.target.generic_func import get_native_generic_func

from tvm_codl.kernels.schedules import conv2d as conv
from tvm_codl.kernels.schedules import dense as products
from tvm_codl.kernels.schedules import depthwise, exponential, integer_conv2d, local, local_products, winograd
from tvm_codl.kernels.schedules.elementwise import schedule_stages
from tvm_codl.kernels.schedules.integers import of_integers
from tvm_codl.kernels.target import CPU_KEY, GPU_KEY, KEY, gpu_of, has_local_memory, is_gpu, is_phone

_WINDOWED = frozenset(
    f"nn.{kind}{dims}d"
    for kind in ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool", "global_max_pool", "global_avg_pool")
    for dims in (1, 2, 3)
) | {"nn.lrn", "nn.l2_normalize", "nn.pad", "nn.dilate", "nn.upsampling", "image.resize2d"}
_Kernel = tuple[Any, Any]  # a compute and its schedule
_PACKED = re.compile(r"OHWI\d*o$")
_INTEGERS_PACKED = re.compile(r"OHWI\d+o\d+i$")


def _schedule_stages(attrs: Any, outs: Any, target: tvm.target.Target) -> Any:
    with target:
        if all(isinstance(op, te.ComputeOp | te.PlaceholderOp) for op in _operations(outs)):
            return schedule_stages(outs)
        # Loops written by hand bind their own threads; only what was fused behind them is left to schedule.
        return (topi.cuda if is_gpu(target) else topi.x86).schedule_injective(outs)


def _operations(outs: Any) -> list[te.Operation]:
    operations = [t.op for t in outs]
    for op in operations:
        operations.extend(t.op for t in op.input_tensors if t.op not in operations)
    return operations


def _implement(compute: Any, schedule: Any, name: str) -> relay.op.OpStrategy:
    strategy = registry.OpStrategy()
    strategy.add_implementation(compute, schedule, name=name)
    return strategy


def _is_float(*tensors: Any) -> bool:
    return all(t.dtype == "float32" for t in tensors)


def _multiplies(target: tvm.target.Target, *tensors: Any) -> bool:
    """Whether our convolutions and products take these operands: float32, on a phone's GPU float16 too."""
    return _is_float(*tensors) or (is_phone(target) and all(t.dtype == "float16" for t in tensors))


def _global_pool(mean: bool) -> Any:
    """One result for each channel: TVM's own windows have extents that it cannot simplify."""

    def compute(attrs: Any, inputs: Any, out_type: Any) -> Any:
        (data,), axes = inputs, [i for i, name in enumerate(str(attrs.layout)) if name in "HW"]
        if not mean:
            return [topi.max(data, axes, keepdims=True)]
        count = math.prod(int(data.shape[axis]) for axis in axes)
        return [topi.multiply(topi.sum(data, axes, keepdims=True), tvm.tir.const(1.0 / count, data.dtype))]

    return compute


_COMPUTES = {"nn.global_avg_pool2d": _global_pool(True), "nn.global_max_pool2d": _global_pool(False)}


def _register(name: str, compute: Any, key: str = KEY, implementation: str = "stages.codl") -> None:
    """``compute`` and the schedule of stages serve the operator ``name`` on targets with ``key``."""
    get_native_generic_func(f"{name}_strategy").register(
        lambda attrs, inputs, out_type, target: _implement(compute, _schedule_stages, implementation),
        [key],
        allow_override=True,
    )


def _register_stages() -> None:
    """Takes over each operator that has one compute for all targets and is element-wise, a reduction or a pooling.

    It registers strategies: TVM copies these operators' schedules per target on import, and would not see a later one.
    """
    for name in tvm.ir.Op.list_op_names():
        operator = tvm.ir.Op.get(name)
        compute = _COMPUTES.get(name) or operator.get_attr("FTVMCompute")
        pattern = operator.get_attr("TOpPattern")
        simple = pattern is not None and int(pattern) <= relay.op.OpPattern.COMM_REDUCE
        if compute is not None and operator.get_attr("FTVMStrategy") is not None and (simple or name in _WINDOWED):
            _register(name, compute)


def _exponential(name: str, ours: Any) -> Any:
    plain = tvm.ir.Op.get(name).get_attr("FTVMCompute")
    return lambda attrs, inputs, out_type: [ours(inputs[0])] if _is_float(*inputs) else plain(attrs, inputs, out_type)


def _softmax(x: te.Tensor, axis: int) -> te.Tensor:
    return (exponential.softmax if _is_float(x) else topi.nn.softmax)(x, axis)


def _conv2d_transpose(attrs: Any, inputs: Any, out_type: Any) -> Any:
    groups = int(attrs.groups)
    plain = topi.nn.conv2d_transpose_nchw if groups == 1 else topi.nn.group_conv2d_transpose_nchw
    return stock.generic.wrap_compute_conv2d_transpose(plain, has_groups=groups > 1)(attrs, inputs, out_type)


def _matmul(attrs: Any, inputs: Any, out_type: Any) -> Any:
    a, b = bool(attrs.transpose_a), bool(attrs.transpose_b)
    return [topi.nn.matmul(inputs[0], inputs[1], None, out_type.dtype, a, b)]


_register_stages()
for _name, _compute, _key in (
    ("exp", exponential.exp, CPU_KEY),
    ("sigmoid", exponential.sigmoid, CPU_KEY),
    ("tanh", topi.fast_tanh, CPU_KEY),
    ("erf", topi.fast_erf, KEY),
):
    _register(_name, _exponential(_name, _compute), _key)
_wraps = stock.generic
_register("softmax", _wraps.wrap_compute_softmax(_softmax), CPU_KEY, "softmax.codl")
for _name, _compute, _implementation in (
    ("softmax", _wraps.wrap_compute_softmax(topi.nn.softmax), "softmax.codl"),
    ("log_softmax", _wraps.wrap_compute_softmax(topi.nn.log_softmax), "log_softmax.codl"),
    ("concat", _wraps.wrap_compute_concat(topi.concatenate), "concatenate.codl"),
    ("layout_transform", _wraps.wrap_compute_layout_transform(topi.layout_transform), "layout_transform.codl"),
    ("matmul", _matmul, "matmul.codl"),
):
    _register(_name, _compute, KEY, _implementation)
_register("conv2d_transpose", _conv2d_transpose, GPU_KEY, "conv2d_transpose_nchw.codl")


def _fallback(name: str, gpu: bool) -> Any:
    """TVM's own strategy of the other keys of our targets."""
    return getattr(stock.cuda if gpu else stock.x86, f"{name}_{'cuda' if gpu else 'cpu'}")


@stock.generic.conv2d_strategy.register(KEY)
def _conv2d(attrs: Any, inputs: Any, out_type: Any, target: tvm.target.Target) -> relay.op.OpStrategy:
    data, kernel = inputs
    layout, kernel_layout, groups = attrs.data_layout, attrs.kernel_layout, int(attrs.groups)
    wrap, schedule = stock.generic.wrap_compute_conv2d, stock.generic.wrap_topi_schedule
    integers = of_integers(data, kernel, out_type)
    if (integers or _multiplies(target, data, kernel)) and layout == "NHWC":
        channels = int(out_type.shape[3])
        if integers and groups == 1 and (kernel_layout == "HWIO" or _INTEGERS_PACKED.match(kernel_layout)):
            return _implement(wrap(integer_conv2d.conv2d), schedule(integer_conv2d.schedule_conv2d), "conv2d_int8.codl")
        if groups == 1 and kernel_layout == "HWIO" and has_local_memory(target):
            return _implement(wrap(local_products.conv2d), schedule(local.schedule_conv2d), "conv2d_local.codl")
        if groups == 1 and (kernel_layout == "HWIO" or _PACKED.match(kernel_layout)):
            return _implement(wrap(conv.conv2d), schedule(conv.schedule_conv2d), "conv2d_nhwc.codl")
        if groups == int(data.shape[3]) == int(kernel.shape[2]) and kernel_layout == "HWOI":
            compute, scheduled = depthwise.depthwise_conv2d, depthwise.schedule_depthwise
            return _implement(wrap(compute), schedule(scheduled), "depthwise_conv2d_nhwc.codl")
        if kernel_layout == "HWIO" and channels % groups == 0:
            return _implement(
                wrap(topi.nn.group_conv2d_nhwc, has_groups=True), _schedule_stages, "group_conv2d_nhwc.codl"
            )
    if layout == "NCHW" and is_gpu(target):
        # TVM's own schedules for OpenCL use barriers and local memory.
        plain = topi.nn.conv2d_nchw if groups == 1 else topi.nn.group_conv2d_nchw
        return _implement(wrap(plain, has_groups=groups > 1), _schedule_stages, "conv2d_nchw.codl")
    return _fallback("conv2d_strategy", is_gpu(target))(attrs, inputs, out_type, target)


@stock.generic.conv2d_winograd_without_weight_transform_strategy.register(KEY)
def _winograd(attrs: Any, inputs: Any, out_type: Any, target: tvm.target.Target) -> relay.op.OpStrategy:
    return _implement(winograd.conv2d, winograd.schedule_conv2d, "conv2d_winograd.codl")


def _register_product(name: str, ours: _Kernel, with_local_memory: _Kernel, *operators: str) -> None:
    """Ours for float32; TVM's own strategy ``name`` for other types."""

    def strategy(attrs: Any, inputs: Any, out_type: Any, target: tvm.target.Target) -> relay.op.OpStrategy:
        integers = of_integers(inputs[0], inputs[1], out_type)
        if integers and name == "dense" and is_gpu(target) and gpu_of(target).kind != "played":
            plain = lambda attrs, inputs, out_type: [topi.nn.dense(inputs[0], inputs[1], None, out_type.dtype)]  # noqa: E731
            return _implement(plain, _schedule_stages, "dense_int8.codl")
        if not (integers and name == "dense") and not _multiplies(target, *inputs):
            return _fallback(f"{name}_strategy", is_gpu(target))(attrs, inputs, out_type, target)
        local_memory = has_local_memory(target)
        compute, schedule = with_local_memory if local_memory else ours
        title = f"{name}_local.codl" if local_memory else f"{name}.codl"
        return _implement(compute, stock.generic.wrap_topi_schedule(schedule), title)

    for operator in (name, *operators):
        get_native_generic_func(f"{operator}_strategy").register(strategy, [KEY])


def _dense(kernel: Any) -> Any:
    return lambda attrs, inputs, out_type: [kernel(inputs[0], inputs[1], out_type.dtype)]


def _batch_matmul(kernel: Any) -> Any:
    def compute(attrs: Any, inputs: Any, out_type: Any) -> Any:
        x, y = inputs[0], stock.generic.copy_if_identical(inputs[0], inputs[1])
        return [kernel(x, y, bool(attrs.transpose_a), bool(attrs.transpose_b), out_type.dtype)]

    return compute


_register_product(
    "dense",
    (_dense(products.dense), products.schedule_dense),
    (_dense(local_products.dense), local.schedule_dense),
    "dense_pack",
)
_register_product(
    "batch_matmul",
    (_batch_matmul(products.batch_matmul), products.schedule_batch_matmul),
    (_batch_matmul(local_products.batch_matmul), local.schedule_batch_matmul),
)
