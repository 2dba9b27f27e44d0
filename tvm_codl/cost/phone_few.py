"""Few samples of one phone: what they teach alone, and together with all that was measured on the other phones.

Alone and together, an ensemble learns the ratio of the time to an :class:`AdditiveTime` of the phone.  With the others',
a sample's row says also that ratio of the same operator on the other phones (their mean), and the other phones' operators
are samples too, each with the mean of the remaining phones.  So the learner sees how one phone's time follows from others'
times and its own schedule, before it sees the new phone; its prediction and that of the phone's own ensemble are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tvm_codl.cost.ensemble import Ensemble, Settings
from tvm_codl.cost.evaluation.metrics import Metrics, holdout, metrics, pooled
from tvm_codl.cost.phone_additive import AdditiveTime
from tvm_codl.cost.phone_data import LEARNED, TREES, Data, Floats, Indices, plain_trees
from tvm_codl.cost.phone_features import WORK

#: Of each other phone, the most shapes that become samples (the mean of others' times is known for all).
_SHAPES = 200
#: Columns along which the new phone may have slopes of its own.
_OWN = (WORK, "bytes", "steps", "threads")


class FewShot(msgspec.Struct, frozen=True):
    """``samples`` convolutions of one phone alone, and with all measurements of the other phones: the same learner,
    samples and held-out shapes.  ``ratio`` is that of the median errors."""

    device: str
    learner: str
    samples: int
    alone: Metrics
    with_others: Metrics
    ratio: float


def few_shot(
    phones: Mapping[str, Data], device: str, seeds: Sequence[int], settings: Settings, samples: int
) -> list[FewShot]:
    """One result a learner; ``phones`` holds the same operator class of every phone, ``device`` among them."""
    data = phones[device]
    others = {phone: known for phone, known in phones.items() if phone != device}
    sums = {phone: AdditiveTime.fit(known.rows, known.names, known.log_ms) for phone, known in others.items()}
    base = {phone: sums[phone].predict(known.rows, known.names) for phone, known in others.items()}
    ratios = {phone: known.log_ms - base[phone] for phone, known in others.items()}
    blocks = _blocks(phones, device, ratios)
    times = _mean_of(list(others.values()), [known.log_ms for known in others.values()], data)
    alone: dict[str, list[Metrics]] = {LEARNED: [], TREES: []}
    together: dict[str, list[Metrics]] = {LEARNED: [], TREES: []}
    for seed in seeds:
        training, test = holdout(data.shapes, seed=seed)
        chosen = _distinct(data, training, samples, seed)
        measured, groups = np.exp(data.log_ms[test]), [data.shapes[i] for i in chosen.tolist()]
        own = AdditiveTime.fit(data.rows[chosen], data.names, data.log_ms[chosen]).predict(data.rows, data.names)
        ratio = data.log_ms[chosen] - own[chosen]
        model = Ensemble.fit(data.rows[chosen], ratio, groups, settings=settings)
        own_ratio, own_sigma = model.predict(data.rows[test])
        alone[LEARNED].append(metrics(measured, np.exp(own[test] + own_ratio), own_sigma))
        log_ms = plain_trees(data.sizes[chosen], data.log_ms[chosen], data.sizes[test])
        alone[TREES].append(metrics(measured, np.exp(log_ms)))

        picked = {
            phone: chosen if phone == device else _distinct(phones[phone], None, _SHAPES, seed) for phone in phones
        }
        rows = np.concatenate([blocks[phone][picked[phone]] for phone in phones])
        learned = [ratio if phone == device else ratios[phone][picked[phone]] for phone in phones]
        names = [phones[phone].shapes[i] for phone in phones for i in picked[phone].tolist()]
        model = Ensemble.fit(rows, np.concatenate(learned), names, settings=settings)
        log_ratio, sigma = model.predict(blocks[device][test])
        log_ratio, sigma = (log_ratio + own_ratio) / 2.0, (sigma + own_sigma) / 2.0
        together[LEARNED].append(metrics(measured, np.exp(own[test] + log_ratio), sigma))
        log_ms = _trees_with_others(data, times, chosen, test)
        together[TREES].append(metrics(measured, np.exp(log_ms)))
    return [_compared(device, learner, samples, pooled(alone[learner]), pooled(together[learner])) for learner in alone]


def _compared(device: str, learner: str, samples: int, alone: Metrics, together: Metrics) -> FewShot:
    return FewShot(device, learner, samples, alone, together, together.median_error / alone.median_error)


def _trees_with_others(data: Data, others: Floats, chosen: Indices, test: Indices) -> Floats:
    """Plain trees on the ratio to the other phones' time."""
    rows = np.column_stack([data.sizes, others])
    ratio = data.log_ms[chosen] - others[chosen]
    result: Floats = others[test] + plain_trees(rows[chosen], ratio, rows[test])
    return result


def _distinct(data: Data, among: Indices | None, count: int, seed: int) -> Indices:
    """One operator each of ``count`` shapes, drawn at random: nobody measures one shape twice."""
    drawn = np.random.default_rng(seed).permutation(len(data.operators) if among is None else among)
    seen: dict[tuple[str | int, ...], int] = {}
    for i in drawn.tolist():
        seen.setdefault(data.operators[i].shape, i)
    return np.array(list(seen.values())[:count], dtype=np.intp)


def _blocks(phones: Mapping[str, Data], device: str, ratios: Mapping[str, Floats]) -> dict[str, Floats]:
    """Rows of each phone: the features, the mean of the others' ``ratios`` (never the new phone's), which phone it is, and
    the new phone's own slopes."""
    blocks = {}
    for at, (phone, data) in enumerate(phones.items()):
        others = [name for name in phones if name not in (phone, device)]
        mean = _mean_of([phones[name] for name in others], [ratios[name] for name in others], data)
        own = np.column_stack([data.rows[:, [data.names.index(name) for name in _OWN]], mean])
        own = (own - own.mean(axis=0)) * (phone == device)
        which = np.tile(np.eye(len(phones))[at], (len(mean), 1))
        blocks[phone] = np.column_stack([data.rows, mean, which, own])
    return blocks


def _mean_of(others: Sequence[Data], values: Sequence[Floats], data: Data) -> Floats:
    """Mean over phones of what is known of each operator's shape there, with the same fused operators where known."""
    columns = []
    for other, known in zip(others, values, strict=True):
        found: dict[object, list[float]] = {}
        for op, value in zip(other.operators, known.tolist(), strict=True):
            found.setdefault((op.shape, op.fused), []).append(value)
            found.setdefault(op.shape, []).append(value)
        median = {key: float(np.median(seen)) for key, seen in found.items()}
        columns.append([median.get((op.shape, op.fused), median.get(op.shape, np.nan)) for op in data.operators])
    result: Floats = np.nanmean(np.array(columns), axis=0)
    return result
