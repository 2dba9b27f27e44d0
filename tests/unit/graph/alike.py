"""Many pieces at once against each by itself."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from tvm_codl.graph.many import Many
from tvm_codl.graph.opgraph import Operator, OpGraph
from tvm_codl.graph.split import NoSplit, Piece, axes, needs, piece, pieces


def member(value: Any, at: int) -> Any:
    """Entry ``at`` of all that is in ``value``."""
    if isinstance(value, Many):
        return int(value[at])
    if isinstance(value, dict):
        return {key: member(item, at) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(member(item, at) for item in value)
    if isinstance(value, msgspec.Struct):
        return type(value)(*(member(getattr(value, field), at) for field in value.__struct_fields__))
    return value


def check_alike(operator: Operator, graph: OpGraph, most: int = 10) -> int:
    """All pieces that start and end at ``most`` places of each axis; how many there are.

    What the rules refuse of a single piece they refuse of many that it is among.
    """
    count = 0
    for name, axis in axes(operator, graph).items():
        places = np.unique(np.linspace(0, axis.extent, most).astype(int)).tolist()
        ends = np.array([(lo, hi) for lo in places for hi in places if lo < hi], dtype=np.int64)
        single: dict[int, Piece] = {}
        for number, (lo, hi) in enumerate(ends.tolist()):
            try:
                single[number] = piece(operator, graph, name, lo, hi)
            except NoSplit:
                with pytest.raises(NoSplit):
                    list(pieces(operator, graph, axis.index, *ends[[*single, number]].T))
        legal = np.array([*single], dtype=np.intp)
        lo, hi = ends[legal].T
        together = {
            legal[row]: (member(part, at), rows)
            for rows, part in pieces(operator, graph, axis.index, lo, hi)
            for at, row in enumerate(rows)
        }
        assert sorted(together) == sorted(single)
        for number, expected in single.items():
            # As JSON: no number is left that is not an ordinary one.
            assert msgspec.json.encode(together[number][0]) == msgspec.json.encode(expected)
        for rows, parts in needs(operator, graph, axis.index, lo, hi):
            for at, row in enumerate(rows):
                for index, (need, expected) in enumerate(
                    zip(member(tuple(parts), at), single[legal[row]].inputs, strict=True)
                ):
                    shape = graph.tensors[operator.inputs[index]].shape
                    covers = need is not None and (need.lo, need.hi) == (0, shape[need.axis])
                    assert (None if covers else need) == expected
        count += len(single)
    return count
