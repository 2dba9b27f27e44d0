"""Process: a Gaussian process on log-time, the smooth half of an :class:`~tvm_codl.cost.ensemble.Ensemble`.

Between neighbouring shapes latency is smooth once the schedule's own numbers (waves, tiles) are among the features;
a process interpolates there where trees can only repeat what they saw.  It is a linear trend plus a Matern 3/2
covariance with one length a column, of greatest posterior density (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006, chapters 2, 4.2 and 5.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

Rows = NDArray[np.float64]

_JITTER = 1e-6
#: The prior of a column's inverse length is log-normal: its mean and its precision.
_INVERSE_LENGTH = (-1.5, 0.3)
_BLOCK = 2048


class Trained(msgspec.Struct, frozen=True):
    """What a process is made of: everything that is stored.

    ``columns`` are the row's columns in use, ``middle`` and ``spread`` scale them; ``points`` has shape (points,
    columns), scaled; ``residual`` is log-time without the trend; ``counts`` says how many samples a point stands for.
    """

    columns: list[int]
    middle: list[float]
    spread: list[float]
    trend: list[float]
    inverse_length: list[float]
    variance: float
    noise: float
    points: list[list[float]]
    residual: list[float]
    counts: list[int]


class Process:
    """Make one with :meth:`fit` or :meth:`from_json`."""

    def __init__(self, trained: Trained) -> None:
        self.trained = trained
        self._columns = np.array(trained.columns, dtype=np.intp)
        self._middle, self._spread = np.array(trained.middle), np.array(trained.spread)
        self._trend, self._inverse = np.array(trained.trend), np.array(trained.inverse_length)
        self._points = np.array(trained.points) * self._inverse
        covariance = _matern(self._points, self._points, trained.variance)[0]
        covariance += np.diag(trained.noise / np.sqrt(np.array(trained.counts)) + _JITTER)
        self._factor = cho_factor(covariance, lower=True)
        self._alpha: Rows = cho_solve(self._factor, np.array(trained.residual))

    @classmethod
    def fit(
        cls,
        rows: Rows,
        log_ms: Rows,
        counts: NDArray[np.intp],
        *,
        steps: int = 20,
        learn_from: int = 600,
        points: int = 2500,
    ) -> Process:
        """Learn from distinct rows of shape (points, columns); ``counts`` says how many samples each stands for.

        The lengths are learned in ``steps`` steps of a quasi-Newton search from at most ``learn_from`` points, and at
        most ``points`` are kept (both drawn at equal distances in the order of the rows).
        """
        kept = _spaced(len(rows), points)
        unique, counts, target = rows[kept], counts[kept], log_ms[kept]
        columns = np.flatnonzero(unique.std(axis=0) > 1e-9)
        used = unique[:, columns]
        middle, spread = used.mean(axis=0), used.std(axis=0)
        scaled = (used - middle) / spread
        trend = _trend(scaled, target)
        residual = target - trend[0] - scaled @ trend[1:]
        few = _spaced(len(scaled), learn_from)
        inverse, variance, noise = _learn(scaled[few], residual[few], counts[few], steps)
        return cls(
            Trained(
                columns.tolist(),
                middle.tolist(),
                spread.tolist(),
                trend.tolist(),
                inverse.tolist(),
                variance,
                noise,
                scaled.tolist(),
                residual.tolist(),
                counts.tolist(),
            )
        )

    def predict(self, rows: Rows) -> tuple[Rows, Rows]:
        """(log_ms, sigma), each of shape (rows,); ``sigma`` is the process's own deviation of a new measurement."""
        means, sigmas = [np.zeros(0)], [np.zeros(0)]
        for start in range(0, len(rows), _BLOCK):
            scaled = (rows[start : start + _BLOCK, self._columns] - self._middle) / self._spread
            cross = _matern(scaled * self._inverse, self._points, self.trained.variance)[0]
            means.append(self._trend[0] + scaled @ self._trend[1:] + cross @ self._alpha)
            inner = solve_triangular(self._factor[0], cross.T, lower=True)
            left = self.trained.variance + self.trained.noise - np.sum(inner**2, axis=0)
            sigmas.append(np.sqrt(np.maximum(left, self.trained.noise)))
        return np.concatenate(means), np.concatenate(sigmas)

    def without(self, rows: Rows, parts: Sequence[NDArray[np.intp]]) -> tuple[Rows, Rows]:
        """What :meth:`predict` says of each part of ``rows``, had it not seen that part (trend and lengths kept).

        ``parts`` are disjoint index arrays; rows of none of them stay NaN.
        """
        mean, sigma = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        trained = self.trained
        seen = {tuple(point): i for i, point in enumerate(trained.points)}
        scaled = (rows[:, self._columns] - self._middle) / self._spread
        place = np.array([seen.get(tuple(row), -1) for row in scaled.tolist()], dtype=np.intp)
        for part in parts:
            hidden = set(place[part].tolist())
            keep = [i for i in range(len(trained.points)) if i not in hidden]
            rest = msgspec.structs.replace(
                trained,
                points=[trained.points[i] for i in keep],
                residual=[trained.residual[i] for i in keep],
                counts=[trained.counts[i] for i in keep],
            )
            mean[part], sigma[part] = Process(rest).predict(rows[part])
        return mean, sigma

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` gives the same predictions from them."""
        found = msgspec.to_builtins(self.trained)
        assert isinstance(found, dict)
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Process:
        """Raises :class:`msgspec.ValidationError` for anything but what :meth:`to_json` gave."""
        return cls(msgspec.convert(value, Trained))


def _trend(scaled: Rows, target: Rows) -> Rows:
    """Ridge regression, intercept first, with the penalty that predicts left-out points best."""
    middle = float(target.mean())
    left, values, right = np.linalg.svd(scaled, full_matrices=False)
    seen = left.T @ (target - middle)
    best, kept = np.inf, np.zeros(scaled.shape[1])
    for penalty in (0.1, 1.0, 10.0, 100.0, 1000.0):
        shrunk = values**2 / (values**2 + penalty)
        leverage = (left**2) @ shrunk + 1.0 / len(target)
        error = (target - middle - left @ (shrunk * seen)) / np.maximum(1.0 - leverage, 0.01)
        if (loss := float(np.mean(error**2))) < best:
            best, kept = loss, right.T @ (values / (values**2 + penalty) * seen)
    return np.concatenate([[middle - float(scaled.mean(axis=0) @ kept)], kept])


def _spaced(count: int, most: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.intp))


def _matern(first: Rows, second: Rows, variance: float) -> tuple[Rows, Rows]:
    """(covariance, variance * exp(-distance)) of points that are scaled by their inverse lengths."""
    squares = np.sum(first**2, axis=1)[:, None] + np.sum(second**2, axis=1)[None, :] - 2.0 * (first @ second.T)
    distance = np.sqrt(3.0 * np.maximum(squares, 1e-12))
    fall = variance * np.exp(-distance)
    return (1.0 + distance) * fall, fall


def _learn(points: Rows, target: Rows, counts: NDArray[np.intp], steps: int) -> tuple[Rows, float, float]:
    """(inverse lengths, variance, noise) of greatest posterior density."""
    size = points.shape[1]
    centre, precision = _INVERSE_LENGTH
    share = 1.0 / np.sqrt(counts)

    def loss(logs: Rows) -> tuple[float, Rows]:
        scaled = points * np.exp(logs[:size])
        noise = np.exp(logs[size + 1]) * share
        covariance, fall = _matern(scaled, scaled, float(np.exp(logs[size])))
        try:
            factor = cho_factor(covariance + np.diag(noise + _JITTER), lower=True)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros(size + 2)
        inverse = cho_solve(factor, np.eye(len(points)))
        alpha = inverse @ target
        away = logs[:size] - centre
        value = 0.5 * target @ alpha + np.sum(np.log(np.diag(factor[0]))) + 0.5 * precision * np.sum(away**2)
        weight = np.outer(alpha, alpha) - inverse
        slope = np.empty(size + 2)
        pull = weight * fall * 3.0
        slope[:size] = pull.sum(axis=1) @ scaled**2 - np.einsum("ij,ij->j", scaled, pull @ scaled) + precision * away
        slope[size] = -0.5 * np.sum(weight * covariance)
        slope[size + 1] = -0.5 * np.sum(np.diag(weight) * noise)
        return float(value), slope

    start = np.concatenate([np.full(size, -2.0), [np.log(max(float(target.var()), 1e-4)), np.log(3e-3)]])
    limits = [(-6.0, 2.0)] * size + [(-8.0, 4.0), (-12.0, 0.0)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": steps}).x
    return np.exp(found[:size]), float(np.exp(found[size])), float(np.exp(found[size + 1]))
