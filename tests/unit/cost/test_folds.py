from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.cost.folds import folds
from tvm_codl.errors import UserError

GROUPS = st.lists(st.integers(0, 12), min_size=2, max_size=60).filter(lambda groups: len(set(groups)) > 1)


@given(GROUPS, st.integers(0, 5))
def test_no_group_lies_on_both_sides(groups: list[int], seed: int) -> None:
    splits = folds(groups, 4, seed)
    for training, test in splits:
        assert len(training) and len(test)
        assert sorted([*training, *test]) == list(range(len(groups)))
        assert not {groups[i] for i in training} & {groups[i] for i in test}
    assert sorted(i for _, test in splits for i in test) == list(range(len(groups)))


@given(GROUPS, st.randoms())
def test_a_split_does_not_depend_on_the_order_of_samples(groups: list[int], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(groups)
    random.shuffle(shuffled)
    for one, other in zip(folds(groups, 3, 1), folds(shuffled, 3, 1), strict=True):
        assert {groups[i] for i in one[1]} == {shuffled[i] for i in other[1]}


def test_one_group_cannot_be_held_out() -> None:
    with pytest.raises(UserError):
        folds(["a", "a"])
