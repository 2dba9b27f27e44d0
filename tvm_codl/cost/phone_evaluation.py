"""Phone evaluation: the learned model next to the baselines on phones' GPUs that others have measured.

Shapes are held out whole, on all phones at once.  Nothing is chosen by what was held out: how an ensemble mixes its
learners, and how sure it says it is, comes from inner folds of the training samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from tvm_codl.cost.board_evaluation import RK3399, evaluate_board
from tvm_codl.cost.ensemble import FULL, Ensemble, Settings
from tvm_codl.cost.evaluation.baselines import BASELINES
from tvm_codl.cost.evaluation.metrics import Metrics, Result, Scatter, holdout, metrics, pooled
from tvm_codl.cost.phone_data import LEARNED, TREES, Data, Floats, Indices, plain_trees
from tvm_codl.cost.phone_features import WORK, WORK_SLOPE, amounts
from tvm_codl.cost.phone_few import FewShot, few_shot
from tvm_codl.cost.phone_rows import CLASSES, PhoneOperator, read_phone_operators
from tvm_codl.errors import UserError

#: The other measurements of the same shape and fused operators as the prediction: no model can beat it by much.
AGAIN = "measured again"
PHONES = ("pixel4", "s10", "a03s")
SEEDS = (0, 1, 2, 3, 4)
FEW = 100
_FEWEST_SHAPES = 10


class PhonesReport(msgspec.Struct, frozen=True):
    """What :func:`evaluate_phones` found."""

    rows: int
    devices: list[str]
    seeds: list[int]
    settings: Settings
    results: list[Result]
    few_shot: list[FewShot]
    scatter: list[Scatter]


def evaluate_phones(
    folder: Path,
    seeds: Sequence[int] = SEEDS,
    devices: Sequence[str] = PHONES,
    *,
    settings: Settings = FULL,
    classes: Sequence[str] | None = None,
    few: int = FEW,
    log: Callable[[str], None] = lambda line: None,
) -> PhonesReport:
    """Evaluate on ``gpu_ops.csv`` in ``folder``; minutes with all seeds and :data:`FULL` settings.

    ``classes`` restricts the operator classes (the values of ``CLASSES``) and leaves the board's convolutions
    out; ``few`` 0 leaves the few-shot part out.
    Raises :class:`UserError` where the folder has no such file or no row of a device.
    """
    operators = read_phone_operators(folder)
    missing = sorted(set(devices) - {op.device for op in operators})
    if missing:
        raise UserError(f"{folder} has no operator of {missing[0]}", f"{len(operators)} rows")
    results, shots, scatter = [], [], []
    for op_class in classes or tuple(dict.fromkeys(CLASSES.values())):
        for device in devices:
            data = Data.of([op for op in operators if op.device == device and op.op_class == op_class])
            if len(set(data.shapes)) < _FEWEST_SHAPES:
                log(f"{device} {op_class}: {len(set(data.shapes))} shapes, too few")
                continue
            found = [_Trial.of(data, seed, settings) for seed in seeds]
            for learner in found[0].predicted:
                mean = pooled([trial.metrics(data, learner) for trial in found])
                results.append(Result(device, op_class, learner, mean))
            log(_said(f"{device} {op_class}", results[-len(found[0].predicted)].metrics))
            if op_class == "conv":
                results.append(Result(device, op_class, AGAIN, _repeats(data)))
                scatter.append(found[0].scatter(device, data))
                if few:
                    for one in few_shot(_phones(operators, op_class), device, seeds, settings, few):
                        shots.append(one)
                        log(_said(f"{device} {few} samples alone, {one.learner}", one.alone))
                        log(_said(f"{device} {few} samples with the other phones', {one.learner}", one.with_others))
    if (folder / RK3399).exists() and classes is None:
        results += evaluate_board(folder, settings=settings, log=log)
    return PhonesReport(len(operators), list(devices), list(seeds), settings, results, shots, scatter)


def _phones(operators: Sequence[PhoneOperator], op_class: str) -> dict[str, Data]:
    """Of every phone in the file, the operators of a class."""
    phones = sorted({op.device for op in operators})
    return {
        phone: Data.of([op for op in operators if op.device == phone and op.op_class == op_class]) for phone in phones
    }


def _said(what: str, found: Metrics) -> str:
    return f"{what}: {found.within_10:.1%} within 10 %, median error {found.median_error:.1%}"


class _Trial(msgspec.Struct, frozen=True):
    """One hold-out: log-times by learner, and the ensemble's deviation."""

    test: Indices
    predicted: dict[str, Floats]
    sigma: Floats

    @classmethod
    def of(cls, data: Data, seed: int, settings: Settings) -> _Trial:
        training, test = holdout(data.shapes, seed=seed)
        slopes = {data.names.index(WORK): WORK_SLOPE}
        groups = [data.shapes[i] for i in training.tolist()]
        model = Ensemble.fit(data.rows[training], data.log_ms[training], groups, slopes=slopes, settings=settings)
        log_ms, sigma = model.predict(data.rows[test])
        trees = plain_trees(data.sizes[training], data.log_ms[training], data.sizes[test])
        predicted = {LEARNED: log_ms, TREES: trees}
        known = amounts(data.operators)
        for name, baseline in BASELINES.items():
            predicted[name] = baseline.fit(known[training], data.log_ms[training]).predict(known[test])
        return cls(test, predicted, sigma)

    def metrics(self, data: Data, learner: str) -> Metrics:
        sigma = self.sigma if learner == LEARNED else None
        return metrics(np.exp(data.log_ms[self.test]), np.exp(self.predicted[learner]), sigma)

    def scatter(self, device: str, data: Data) -> Scatter:
        def short(log_ms: Floats) -> list[float]:
            return [float(f"{value:.5g}") for value in np.exp(log_ms)]

        predicted = {name: short(values) for name, values in self.predicted.items()}
        return Scatter(device, short(data.log_ms[self.test]), predicted)


def _repeats(data: Data) -> Metrics:
    same: dict[tuple[tuple[str | int, ...], tuple[str, ...]], list[float]] = {}
    for op, value in zip(data.operators, data.log_ms.tolist(), strict=True):
        same.setdefault((op.shape, op.fused), []).append(value)
    measured, predicted = [], []
    for values in same.values():
        for at, value in enumerate(values):
            if rest := values[:at] + values[at + 1 :]:
                measured.append(value)
                predicted.append(float(np.median(rest)))
    return metrics(np.exp(measured), np.exp(predicted))
