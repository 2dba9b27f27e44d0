from __future__ import annotations

import pytest

from tvm_codl.graph.slab import Slab, hull, shape_of


def test_within_and_inside() -> None:
    assert Slab(1, 4, 6).within(Slab(1, 3, 9)) == Slab(1, 1, 3)
    assert Slab(1, 4, 6).within(None) == Slab(1, 4, 6)
    assert Slab(1, 4, 6).inside(Slab(1, 4, 6))
    assert not Slab(1, 4, 6).inside(Slab(2, 0, 9))


@pytest.mark.parametrize("outer", [Slab(0, 0, 9), Slab(1, 5, 9), Slab(1, 0, 5)])
def test_within_refuses_what_is_outside(outer: Slab) -> None:
    with pytest.raises(ValueError, match="is not within"):
        Slab(1, 4, 6).within(outer)


def test_hull() -> None:
    assert hull([Slab(1, 2, 4), Slab(1, 6, 7)]) == Slab(1, 2, 7)
    assert hull([Slab(1, 2, 4), Slab(2, 2, 4)]) is None
    assert hull([Slab(1, 2, 4), None]) is None
    assert hull([Slab(0, 0, 0), Slab(1, 2, 4)]) == Slab(1, 2, 4)
    assert hull([Slab(1, 3, 3)]) == Slab(1, 3, 3)


def test_shape_of() -> None:
    assert shape_of((2, 5, 3), Slab(1, 1, 3)) == (2, 2, 3)
    assert shape_of((2, 5, 3), None) == (2, 5, 3)
