"""What to try next: AutoTVM's tuners, its model-based one with a cost model over our knobs, and a hill climber.

AutoTVM's own ``XGBTuner`` does not work here: its features cannot take knobs that are words, and xgboost 2.0 dropped its
ranking loss.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import xgboost
from tvm.autotvm.tuner import GridSearchTuner, RandomTuner
from tvm.autotvm.tuner.model_based_tuner import CostModel, ModelBasedTuner, ModelOptimizer
from tvm.autotvm.tuner.tuner import Tuner

from tvm_codl.kernels.dispatch import plain
from tvm_codl.kernels.reuse import place_of
from tvm_codl.kernels.tuner.trials import Pair, knobs_of, legal, seconds

#: Trials between two fits of the model.
PLAN = 16
#: What a kernel's own trials weigh against those of its relatives.
OWN_WEIGHT = 4.0
PARAMETERS = {"max_depth": 4, "eta": 0.2, "min_child_weight": 1, "objective": "reg:squarederror", "verbosity": 0}
TREES = 60


class KnobModel(CostModel):
    """Predicts the speed of a configuration, relative to the best of its kernel, from its knobs and the kernel's extents."""

    def __init__(self, task: Any, threads: int = 1) -> None:
        super().__init__()
        self.task, self.threads = task, threads
        self._extents = _extents(task.workload)
        self._words = {
            name: [entity.val for entity in space.entities] for name, space in task.config_space.space_map.items()
        }
        self._history: tuple[list[list[float]], list[float]] = ([], [])
        self._booster: xgboost.Booster | None = None

    def learn_from(self, kernels: Iterable[Sequence[Pair]]) -> int:
        """Learns from trials of other kernels of the same template; returns how many there were."""
        rows, speeds = self._history
        for trials in kernels:
            best = min((seconds(result) for _, result in trials), default=math.inf)
            for candidate, result in trials if best < math.inf else ():
                rows.append(self._features(candidate.config, _extents(plain(candidate.task.workload))))
                speeds.append(best / seconds(result))
        if rows:
            self._train(np.array(rows), np.array(speeds), np.ones(len(rows)))
        return len(rows)

    def fit(self, xs: Sequence[int], ys: Sequence[float], plan_size: int) -> None:
        """``xs`` are indices of configurations, ``ys`` their FLOP/s."""
        rows, speeds = self._history
        own = np.array(ys) / max(max(ys), 1e-9)
        features = np.array(rows + [self._features(self.task.config_space.get(x), self._extents) for x in xs])
        weights = np.concatenate([np.ones(len(rows)), np.full(len(xs), OWN_WEIGHT)])
        self._train(features, np.concatenate([np.array(speeds), own]), weights)

    def predict(self, xs: Sequence[int], output_margin: bool = False) -> np.ndarray:
        assert self._booster is not None
        features = np.array([self._features(self.task.config_space.get(int(x)), self._extents) for x in xs])
        return self._booster.predict(xgboost.DMatrix(features))

    def _train(self, features: np.ndarray, speeds: np.ndarray, weights: np.ndarray) -> None:
        data = xgboost.DMatrix(features, label=speeds, weight=weights)
        self._booster = xgboost.train({**PARAMETERS, "nthread": self.threads}, data, TREES)

    def _features(self, config: Any, extents: Sequence[float]) -> list[float]:
        numbers = [number for name, value in knobs_of(config) for number in self._numbers(name, value)]
        # A tile that divides its extent leaves no tail.
        tails = [extent % max(number, 1) / max(extent, 1) for extent in extents for number in numbers[:2]]
        return [*numbers, math.prod(numbers[:2]), *extents, *tails]

    def _numbers(self, name: str, value: Any) -> list[float]:
        """A knob's number, those in its word, or the place of a word without any among the knob's."""
        if not isinstance(value, str):
            return [float(value)]
        words = self._words.get(name, [])
        place = float(words.index(value) if value in words else -1)
        return [float(number) for number in re.findall(r"\d+", value)] or [place]


class Exhaustive(ModelOptimizer):
    """Looks at the whole space, which is small: the most promising first, an eighth of the plan at random."""

    def __init__(self, task: Any, seed: int = 0) -> None:
        super().__init__()
        self._legal, self._random = legal(task.config_space), random.Random(seed)

    def find_maximums(self, model: CostModel, num: int, exclusive: Iterable[int]) -> list[int]:
        seen = set(exclusive)
        left = [index for index in self._legal if index not in seen]
        if not left:
            return []
        order = [left[i] for i in np.argsort(-model.predict(left), kind="stable")]
        best = order[: num - num // 8]
        rest = order[len(best) :]
        return best + self._random.sample(rest, min(num - len(best), len(rest)))


class XGBTuner(ModelBasedTuner):
    """AutoTVM's model-based tuner with the model above."""

    def __init__(self, task: Any) -> None:
        super().__init__(task, KnobModel(task), Exhaustive(task), PLAN)

    def has_next(self) -> bool:
        return len(self.visited) < len(self.space)

    def learn_from(self, kernels: Iterable[Sequence[Pair]]) -> int:
        """Transfer learning: the first plan comes from what other kernels have shown."""
        count = self.cost_model.learn_from(kernels)
        if count:
            self.trials = self.model_optimizer.find_maximums(self.cost_model, self.plan_size, self.visited)
            self.trial_pt = 0
        return count


class HillClimb(Tuner):
    """One knob after another around the best so far, the two of the register tile together; then from there again."""

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        self.visited: set[int] = set()
        self._legal = legal(task.config_space)
        self._best, self._best_flops = self._legal[0], 0.0

    def has_next(self) -> bool:
        return bool(self._around())

    def next_batch(self, batch_size: int) -> list[Any]:
        chosen = self._around()[:batch_size]
        self.visited.update(chosen)
        return [self.space.get(index) for index in chosen]

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        for candidate, result in zip(inputs, results, strict=True):
            self.visited.add(candidate.config.index)
            flops = candidate.task.flop / seconds(result)
            if flops > self._best_flops:
                self._best, self._best_flops = candidate.config.index, flops

    def _around(self) -> list[int]:
        here = dict(knobs_of(self.space.get(self._best)))
        neighbours = []
        for index in self._legal:
            changed = {n for n, value in knobs_of(self.space.get(index)) if value != here[n]}
            if index not in self.visited and (len(changed) <= 1 or changed <= {"columns", "blocks"}):
                neighbours.append((len(changed - {"columns", "blocks"}), index))
        return [index for _, index in sorted(neighbours)]


_MAKERS: dict[str, Callable[[Any], Tuner]] = {
    "xgb": XGBTuner,
    "random": RandomTuner,
    "gridsearch": GridSearchTuner,
    "climb": HillClimb,
}
NAMES = tuple(_MAKERS)


def make_tuner(name: str, task: Any, recorded: Sequence[Pair], relatives: Iterable[Sequence[Pair]]) -> Tuner:
    """A tuner that knows ``recorded``, proposes none of it again, and learns from ``relatives`` if it can learn."""
    tuner = _MAKERS[name](task)
    seen = {candidate.config.index for candidate, _ in recorded}
    propose = tuner.next_batch

    def next_batch(size: int) -> list[Any]:
        fresh: list[Any] = []
        while len(fresh) < size and tuner.has_next():
            fresh += [config for config in propose(size - len(fresh)) if config.index not in seen]
        return fresh

    tuner.next_batch = next_batch
    if isinstance(tuner, XGBTuner):
        tuner.learn_from(relatives)
    if recorded:
        tuner.update([candidate for candidate, _ in recorded], [result for _, result in recorded])
        best = min(recorded, key=lambda pair: seconds(pair[1]))
        if best[1].error_no == 0:
            tuner.best_flops = task.flop / seconds(best[1])
            tuner.best_config, tuner.best_measure_pair = best[0].config, best
    return tuner


def _extents(workload: tuple[Any, ...]) -> list[float]:
    """The numbers that tell a kernel of a template from another."""
    place = place_of(workload[0], workload[1:])
    return [float(x) for x in (*place.extents, *_numbers(place.family))]


def _numbers(value: Any) -> list[float]:
    if isinstance(value, tuple):
        return [number for part in value for number in _numbers(part)]
    return [float(value)] if isinstance(value, (int, float)) else []
