"""Phones: the planner's learner next to the baselines, on phones' GPUs that others have measured.

Operator shapes are held out whole, a fifth at a time; so a network is predicted from operators that were not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import xgboost as xgb
from numpy.typing import NDArray
from scipy.optimize import nnls

from benchmarks.phones.board import RK3399, evaluate_board
from benchmarks.phones.delegate import Gpu, read_gpus
from benchmarks.phones.kernels import describe, flops
from benchmarks.phones.operators import (
    CLASSES,
    NETWORKS,
    PhoneOperator,
    read_network_times,
    read_phone_operators,
)
from tvm_codl.cost.evaluation.baselines import BASELINES, Amounts, Baseline
from tvm_codl.cost.evaluation.held_out import LEARNED
from tvm_codl.cost.evaluation.metrics import Result, Scatter, metrics
from tvm_codl.cost.folds import folds
from tvm_codl.cost.learned import learn

Floats = NDArray[np.float64]
Log = Callable[[str], None]

#: Facts of the phones' GPUs, beside the measurements.
GPUS = "gpus.json"
#: The other measurements of the same shape and fused operators as the prediction: a bound for every model.
AGAIN = "measured again"
#: A network as the sum of its operators' measured times: a bound for every model of operators.
MEASURED = "measured operators"
WHOLE = "whole networks"
FEW = 100
_FEWEST_SHAPES = 10


class PhonesReport(msgspec.Struct, frozen=True):
    """``gpus`` are the facts that were used; a phone without any has the defaults of :class:`Gpu`."""

    rows: int
    folds: int
    gpus: dict[str, Gpu]
    results: list[Result]
    scatter: list[Scatter]


class PlainTrees(msgspec.Struct, frozen=True):
    """Boosted trees with usual settings on sizes alone, without the schedule: the obvious first model."""

    trees: xgb.Booster

    @classmethod
    def fit(cls, amounts: Amounts, log_ms: Floats) -> PlainTrees:
        known = xgb.DMatrix(cls._rows(amounts), label=log_ms, nthread=1)
        settings = {"max_depth": 6, "eta": 0.1, "tree_method": "hist", "nthread": 1, "seed": 0}
        return cls(xgb.train(settings, known, num_boost_round=300))

    def predict(self, amounts: Amounts) -> Floats:
        answer: Floats = self.trees.predict(xgb.DMatrix(self._rows(amounts), nthread=1)).astype(np.float64)
        return answer

    @staticmethod
    def _rows(amounts: Amounts) -> Floats:
        return np.column_stack([getattr(amounts, name) for name in amounts.__struct_fields__[:-2]])


_BASELINES: dict[str, type[Baseline]] = {"plain trees": PlainTrees, **BASELINES}


def evaluate_phones(
    folder: Path, gpus: Path | None = None, *, quick: bool = False, log: Log = lambda line: None
) -> PhonesReport:
    """Evaluate on ``gpu_ops.csv`` and, where they are there, the other files in ``folder``.

    ``gpus`` holds the facts of the phones' GPUs, by default ``folder/gpus.json``.  ``quick`` holds out one fifth only.
    Raises :class:`UserError` for files that cannot be read.
    """
    operators = read_phone_operators(folder)
    path = gpus or folder / GPUS
    facts = read_gpus(path) if gpus or path.exists() else {}
    whole = read_network_times(folder) if (folder / NETWORKS).exists() else {}
    used, results, scatter = {}, [], []
    for device in sorted({op.device for op in operators}):
        if device not in facts:
            log(f"{device}: no facts of its GPU; name vendor, compute_units and wave in {path}, or in --gpus FILE")
        gpu = used[device] = facts.get(device, Gpu())
        own = [op for op in operators if op.device == device]
        learned_ms = np.full(len(own), np.nan)
        for op_class in dict.fromkeys(CLASSES.values()):
            at = np.array([i for i, op in enumerate(own) if op.op_class == op_class], dtype=np.intp)
            chosen = [own[i] for i in at.tolist()]
            if len({op.shape for op in chosen}) < _FEWEST_SHAPES:
                log(f"{device} {op_class}: fewer than {_FEWEST_SHAPES} shapes")
                continue
            found, predicted = _of_class(chosen, gpu, device, op_class, quick)
            results += found
            learned_ms[at] = predicted[LEARNED]
            log(f"{device} {op_class}: {found[0].metrics.within_10:.1%} within 10 %")
            if op_class == "conv":
                scatter.append(_scatter(device, chosen, predicted))
        if not quick:
            results += _networks(device, own, learned_ms, whole)
    if (folder / RK3399).exists():
        results += evaluate_board(folder)
    return PhonesReport(len(operators), 1 if quick else 5, used, results, scatter)


def _of_class(
    operators: Sequence[PhoneOperator], gpu: Gpu, device: str, op_class: str, quick: bool
) -> tuple[list[Result], dict[str, Floats]]:
    """Results of each learner, the planner's first, and their milliseconds; NaN where nothing was predicted."""
    described, amounts = describe(operators, gpu)
    shapes = [op.shape for op in operators]
    ms = np.array([op.ms for op in operators])
    log_ms = np.log(ms)
    few = f"{op_class}, {FEW} samples"
    names = (LEARNED, *_BASELINES, *((few,) if op_class == "conv" else ()))
    predicted = {name: np.full(len(ms), np.nan) for name in names}
    sigma = {name: np.full(len(ms), np.nan) for name in (LEARNED, few)}
    for training, test in folds(shapes)[: 1 if quick else None]:
        for name in sigma.keys() & predicted.keys():
            known = training if name == LEARNED else _distinct(training, shapes)[:FEW]
            model = learn(described[known], log_ms[known], [shapes[i] for i in known.tolist()])[0]
            answer, sigma[name][test] = model.estimate(described[test])
            predicted[name][test] = np.exp(answer)
        for name, baseline in _BASELINES.items():
            predicted[name][test] = np.exp(baseline.fit(amounts[training], log_ms[training]).predict(amounts[test]))
    if op_class == "conv":
        predicted[AGAIN] = _repeats(operators)
    results = []
    for name, answer in predicted.items():
        at = np.flatnonzero(np.isfinite(answer))
        if len(at):
            stated = sigma[name][at] if name in sigma else None
            subject, learner = (few, LEARNED) if name == few else (op_class, name)
            results.append(Result(device, subject, learner, metrics(ms[at], answer[at], stated)))
    return results, predicted


def _distinct(chosen: NDArray[np.intp], shapes: Sequence[object]) -> NDArray[np.intp]:
    """One of each shape, in random order: nobody measures a shape twice."""
    drawn = np.random.default_rng(0).permutation(chosen).tolist()
    first = {shapes[i]: i for i in reversed(drawn)}
    return np.array([i for i in drawn if first[shapes[i]] == i], dtype=np.intp)


def _repeats(operators: Sequence[PhoneOperator]) -> Floats:
    """For each operator the median of the others of its shape and fused operators; NaN for none."""
    same: dict[object, list[int]] = {}
    for i, op in enumerate(operators):
        same.setdefault((op.shape, op.fused), []).append(i)
    found = np.full(len(operators), np.nan)
    for members in same.values():
        for i in members if len(members) > 1 else ():
            found[i] = np.median([operators[j].ms for j in members if j != i])
    return found


def _networks(
    device: str, operators: Sequence[PhoneOperator], learned_ms: Floats, whole: dict[tuple[str, str], float]
) -> list[Result]:
    """Whole networks from their operators' times: a start, a cost per operator and a factor, fitted on other networks."""
    unknown = {op.model for op, ms in zip(operators, learned_ms.tolist(), strict=True) if not ms > 0}
    models = sorted({op.model for op in operators if (device, op.model) in whole} - unknown)
    if len(models) < _FEWEST_SHAPES:
        return []
    measured = np.array([whole[device, model] for model in models])
    at = np.flatnonzero(np.isin([op.model for op in operators], models))
    model_of = np.searchsorted(models, [operators[i].model for i in at.tolist()])
    learners = {
        LEARNED: learned_ms,
        MEASURED: np.array([op.ms for op in operators]),
        "FLOPs": np.array([flops(op) for op in operators]),
    }
    results = []
    for name, values in learners.items():
        columns = (np.bincount(model_of, values[at]), np.bincount(model_of), np.ones(len(models)))
        design = np.column_stack(columns) / measured[:, None]
        scale = design.max(axis=0)
        share = np.empty(len(models))
        for training, test in folds(models):
            share[test] = design[test] / scale @ nnls(design[training] / scale, np.ones(len(training)))[0]
        results.append(Result(device, WHOLE, name, metrics(measured, share * measured)))
    return results


def _scatter(device: str, operators: Sequence[PhoneOperator], predicted: dict[str, Floats]) -> Scatter:
    at = np.flatnonzero(np.isfinite(predicted[LEARNED]))

    def short(values: Sequence[float]) -> list[float]:
        return [float(f"{value:.5g}") for value in values]

    times = {name: short(predicted[name][at].tolist()) for name in (LEARNED, *_BASELINES)}
    return Scatter(device, short([operators[i].ms for i in at.tolist()]), times)
