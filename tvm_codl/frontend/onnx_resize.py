"""Rewrites a Resize of ONNX for TVM's importer, which reads neither its axes nor its policy, and rounds otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from tvm_codl.frontend.onnx_fold import Constants, constant_node
from tvm_codl.frontend.onnx_types import Types, attributes_of, shape_of
from tvm_codl.relay.model import Shape

#: Coordinates for which TVM finds the nearest value as ONNX does, if all scales are whole numbers, and the roundings.
_PLAIN = {
    "half_pixel": ("round_prefer_floor", "round_prefer_ceil"),
    "pytorch_half_pixel": ("round_prefer_floor", "round_prefer_ceil"),
    "asymmetric": ("floor",),
}


def resize(node: onnx.NodeProto, types: Types, constants: Constants) -> list[onnx.NodeProto]:
    """What takes the node's place: a resize of all axes, or for a nearest neighbour that TVM finds elsewhere a Gather for
    each axis."""
    attributes, shape = attributes_of(node), shape_of(node.input[0], types)
    policy = attributes.get("keep_aspect_ratio_policy", b"stretch")
    roi, scales, sizes = ([*node.input, "", "", ""][place] for place in (1, 2, 3))
    given = constants.get(sizes or scales)
    if shape is None or given is None or not given.size or (roi and roi not in constants):
        return [node]
    axes = [axis % len(shape) for axis in attributes.get("axes", range(len(shape)))]
    ratios = given / [shape[axis] for axis in axes] if sizes else given
    if sizes and policy != b"stretch":
        ratios = np.full(len(axes), ratios.min() if policy == b"not_larger" else ratios.max())
    whole = _spread(ratios, axes, [1.0] * len(shape))
    if attributes.get("mode", b"nearest") == b"nearest" and not attributes.get("antialias"):
        exact = sizes and policy == b"stretch"
        extents = _spread(given, axes, shape) if exact else np.floor(np.asarray(shape) * whole + 0.5 * bool(sizes))
        gathers = _gathers(node, shape, whole, extents)
        if gathers:
            return gathers
    if "axes" not in attributes and policy == b"stretch":
        return [node]
    made: dict[str, np.ndarray] = {}
    if roi and constants[roi].size:
        starts, ends = np.split(constants[roi], 2)
        made["roi"] = np.concatenate(
            [_spread(starts, axes, [0.0] * len(shape)), _spread(ends, axes, [1.0] * len(shape))]
        )
    if sizes and policy == b"stretch":
        made["sizes"] = _spread(given, axes, shape)
    else:
        made["scales"] = whole.astype(np.float32)
    names = {what: f"{node.output[0]}.{what}" for what in made}
    inputs = [node.input[0], *(names.get(what, "") for what in ("roi", "scales", "sizes"))]
    other = helper.make_node("Resize", inputs, node.output, node.name)
    other.attribute.extend(a for a in node.attribute if a.name not in ("axes", "keep_aspect_ratio_policy"))
    return [*(constant_node(names[what], value) for what, value in made.items()), other]


def _spread(values: np.ndarray, axes: Sequence[int], rest: Sequence[float]) -> np.ndarray:
    whole = np.array(rest, values.dtype)
    whole[list(axes)] = values
    return whole


def _gathers(node: onnx.NodeProto, shape: Shape, scales: np.ndarray, extents: np.ndarray) -> list[onnx.NodeProto]:
    """Empty where TVM's own resize finds the same values, or for coordinates that are left to it."""
    attributes = attributes_of(node)
    coordinates = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    rounding = attributes.get("nearest_mode", b"round_prefer_floor").decode()
    if rounding in _PLAIN.get(coordinates, ()) and np.all(scales == np.round(scales)):
        return []
    made, source = [], node.input[0]
    changed = [axis for axis, extent in enumerate(shape) if scales[axis] != 1 or extents[axis] != extent]
    for axis in changed:
        places = _places(coordinates, shape[axis], int(extents[axis]), scales[axis])
        if places is None:
            return []
        index = np.clip(_rounded(places, rounding), 0, shape[axis] - 1).astype(np.int64)
        name = f"{node.output[0]}.places{axis}"
        target = node.output[0] if axis == changed[-1] else f"{node.output[0]}.axis{axis}"
        made += [constant_node(name, index), helper.make_node("Gather", [source, name], [target], node.name, axis=axis)]
        source = target
    return made or [helper.make_node("Identity", node.input[:1], node.output, node.name)]


def _places(coordinates: str, before: int, after: int, scale: np.floating) -> np.ndarray | None:
    """Where each value lies in the original, by ONNX's formulas for ``coordinate_transformation_mode``; in float32 where the
    scale was given, as ONNX's reference has it."""
    place = np.arange(after, dtype=scale.dtype)
    if coordinates == "asymmetric":
        return place / scale
    if coordinates == "align_corners":
        return place * (before - 1) / (before * scale - 1) if before * scale != 1 else np.zeros(after)
    if coordinates == "pytorch_half_pixel" and after == 1:
        return np.zeros(1)
    if coordinates in ("half_pixel", "pytorch_half_pixel"):
        return (place + 0.5) / scale - 0.5
    return None


def _rounded(places: np.ndarray, rounding: str) -> np.ndarray:
    if rounding == "round_prefer_floor":
        return np.ceil(places - 0.5)
    if rounding == "round_prefer_ceil":
        return np.floor(places + 0.5)
    return np.ceil(places) if rounding == "ceil" else np.floor(places)
