"""Packs weights while the network is built, where TVM folds constants: AlterOpLayout and Legalize for our targets."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay, topi

from tvm_codl.kernels.schedules import winograd
from tvm_codl.kernels.schedules.conv2d import lanes_for, packing
from tvm_codl.kernels.schedules.integer_conv2d import integer_packing
from tvm_codl.kernels.schedules.integers import of_integers, shifted_conv2d
from tvm_codl.kernels.schedules.kernel import problem_on
from tvm_codl.kernels.target import KEY, dot_on, has_local_memory, is_phone, vector_lanes
from tvm_codl.kernels.tiles import one_row, vectors


@topi.nn.conv2d_alter_layout.register(KEY)
def _pack_conv2d(attrs: Any, inputs: Any, tinfos: Any, out_type: Any) -> relay.Expr | None:
    """HWIO weights become OHWI{v}o.  A phone's GPU reads them as they are: neighbouring vectors of channels are adjacent."""
    integers = of_integers(tinfos[0], tinfos[1], out_type)
    if is_phone(tvm.target.Target.current()) and not integers:
        return None
    if (attrs.data_layout, attrs.kernel_layout) != ("NHWC", "HWIO") or int(attrs.groups) != 1:
        return None
    _, rows, columns, channels = (int(d) for d in out_type.shape)
    if integers:
        (lanes, fill), step = integer_packing(channels, rows * columns), dot_on(tinfos[0].dtype).step
        layout, fill = f"OHWI{lanes}o{step}i", fill or int(tinfos[0].shape[3]) % step != 0
    elif any(t.dtype != "float32" for t in tinfos) or has_local_memory(tvm.target.Target.current()):
        return None
    else:
        lanes, fill = packing(channels, rows * columns)
        layout = f"OHWI{lanes}o"
    if fill:
        return None
    if not integers and (made := winograd.packed(attrs, inputs, tinfos, out_type, lanes)) is not None:
        return made
    changed = {**attrs, "kernel_layout": layout, "data_layout": "NHWC", "channels": out_type.shape[3]}
    return relay.nn.conv2d(*inputs, **changed)


@topi.nn.dense_alter_layout.register(KEY)
def _pack_dense(attrs: Any, inputs: Any, tinfos: Any, out_type: Any) -> relay.Expr | None:
    """(N, K) weights become NC{v}n; on a phone's GPU one block of all, (1, K, N)."""
    target = tvm.target.Target.current()
    integers = of_integers(tinfos[0], tinfos[1], out_type) and not (is_phone(target) or has_local_memory(target))
    if not integers and any(t.dtype != "float32" for t in tinfos):
        return None
    units = int(tinfos[1].shape[0])
    # On a real GPU, neighbouring work-items read neighbouring units: all of them are one vector.
    lanes = units if is_phone(target) or has_local_memory(target) else lanes_for(units)
    return relay.nn.contrib_dense_pack(*inputs, f"NC{lanes}n", None, out_type.dtype)


@topi.nn.conv2d_legalize.register(KEY)
def _whole_vectors_conv2d(attrs: Any, inputs: Any, types: Any) -> relay.Expr | None:
    """Adds zero weights up to whole vectors of channels, and cuts the extra results off; or takes all positions for one row."""
    if (attrs.data_layout, attrs.kernel_layout) != ("NHWC", "HWIO") or int(attrs.groups) != 1:
        return None
    shape = [int(d) for d in types[-1].shape]
    kernel = [int(d) for d in types[1].shape]
    widest = _widest()
    extra = int(vectors.missing_conv2d(shape[3], shape[1] * shape[2], kernel[0] * kernel[1] * kernel[2], widest))
    integers = of_integers(types[0], types[1], types[-1])
    if not integers and types[0].dtype != "float32":
        return None
    if not integers and _in_one_row(attrs, shape, kernel, extra):
        n, h, w, c = (int(d) for d in types[0].shape)
        row = relay.nn.conv2d(relay.reshape(inputs[0], (n, 1, h * w, c)), inputs[1], **attrs)
        return relay.reshape(row, shape)
    if not extra:
        return shifted_conv2d(attrs, inputs, types[0].dtype) if integers else None
    weights = relay.nn.pad(inputs[1], ((0, 0), (0, 0), (0, 0), (0, extra)))
    changed = {**attrs, "channels": shape[3] + extra}
    wider = shifted_conv2d(changed, [inputs[0], weights], types[0].dtype) if integers else None
    if wider is None:
        wider = relay.nn.conv2d(inputs[0], weights, **changed)
    return relay.strided_slice(wider, begin=[0, 0, 0, 0], end=shape)


def _in_one_row(attrs: Any, shape: list[int], kernel: list[int], extra: int) -> bool:
    """As :class:`tvm_codl.cost.schedules.Scheduler` decides for arrays."""
    target = tvm.target.Target.current()
    plain = [int(n) for n in (*attrs.kernel_size, *attrs.strides, *attrs.dilation)] == [1] * 6
    if not plain or extra or any(int(n) for n in attrs.padding) or is_phone(target) or has_local_memory(target):
        return False
    _, rows, columns, channels = shape
    lanes, fill = packing(channels, rows * columns)
    return not fill and bool(one_row.in_one_row(problem_on(rows, columns, channels, kernel[2], kernel[2], lanes)))


@topi.nn.dense_legalize.register(KEY)
def _whole_vectors_dense(attrs: Any, inputs: Any, types: Any) -> relay.Expr | None:
    rows, units = (int(d) for d in types[-1].shape)
    extra = int(vectors.missing(units, _widest()))
    if not extra or types[0].dtype != "float32":
        return None
    weights = relay.nn.pad(inputs[1], ((0, extra), (0, 0)))
    wider = relay.nn.dense(inputs[0], weights, units=units + extra, out_dtype=attrs.out_dtype)
    return relay.strided_slice(wider, begin=[0, 0], end=[rows, units])


def _widest() -> int:
    """The vectors that channels must fill; tiles in local memory take any number of channels."""
    target = tvm.target.Target.current()
    return 1 if has_local_memory(target) else vector_lanes(target)
