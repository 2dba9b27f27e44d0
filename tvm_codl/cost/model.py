"""CostModel: milliseconds of any piece of any operator on each processor of a device, and how sure that is.

1. A measured workload costs its measured time.
2. Others are predicted by :mod:`.learned`: a sum over the kernel's work, and boosted trees (xgboost) on the residual.
3. The curve of an operator's cuts is moved through the measured ones (:mod:`.calibration`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xgboost as xgb
from numpy.typing import NDArray

from tvm_codl.cost.calibration import Calibration, Curve, Place, Trust, calibrate
from tvm_codl.cost.device import DeviceFacts
from tvm_codl.cost.features import NAMES, Describer, joined
from tvm_codl.cost.learned import Learned, learn
from tvm_codl.cost.samples import LEAST_SIGMA, UNSURE_SIGMA, Sample, newest_build, samples_of, shape_of
from tvm_codl.cost.schedules import CONVOLUTION, NONE, PRODUCT, STRIPS
from tvm_codl.cost.table import Rows
from tvm_codl.cost.work import TERMS
from tvm_codl.errors import UserError
from tvm_codl.kernels.reuse import Tunings, shipped
from tvm_codl.records.pieces import Pieces
from tvm_codl.records.record import Processor
from tvm_codl.records.workload import Workload

__all__ = ["CostModel", "Sample", "newest_build", "samples_of", "shape_of"]

FORMAT = 3
PROCESSORS: tuple[Processor, Processor] = ("cpu", "gpu")
#: What a plan adds to predictions of pieces.  It takes the least of many, which is too little more often than not: with
#: kernels that differ by 8 % from all that the model knows, plans took 7 % longer than predicted without this, 2 % with it,
#: and were faster by 1.5 %.  What to measure next is better chosen without.
CAUTION = 1.07


class _Processor(msgspec.Struct):
    """One processor's measurements (ms, sigma) and the model learned from them; None if every measurement failed."""

    measured: dict[str, tuple[float, float]]
    learned: Learned | None
    calibration: Calibration


class CostModel:
    """Make one with :meth:`fit` or :meth:`load`; ``provenance`` says what it was learned from.

    ``device`` is the phone whose measurements it holds, and that it predicts by default.
    """

    def __init__(
        self,
        processors: Mapping[Processor, _Processor],
        provenance: Mapping[str, Any],
        device: DeviceFacts,
        tunings: Tunings,
        caution: float = 1.0,
    ) -> None:
        self._processors = dict(processors)
        self._caution = caution
        self.provenance = dict(provenance)
        self.device, self.tunings = device, tunings
        self._describers: dict[tuple[Processor, DeviceFacts], Describer] = {}

    @classmethod
    def fit(
        cls,
        samples: Sequence[Sample],
        provenance: Mapping[str, Any] | None = None,
        device: DeviceFacts | None = None,
        tunings: Tunings | None = None,
    ) -> CostModel:
        """Learn from samples of one or several devices; ``device`` is the one to predict (default: the last sample's).

        ``tunings``: the tuned kernels that the builds used (default: those shipped).
        Raises :class:`UserError` if no sample has a finite time.
        """
        if not any(math.isfinite(sample.ms) for sample in samples):
            raise UserError("no measurement to learn costs from", f"{len(samples)} samples, all failed")
        home = device or samples[-1].device
        model = cls({}, {}, home, shipped() if tunings is None else tunings)
        counts: dict[str, int] = {}
        for processor in PROCESSORS:
            own = {(s.workload.key, s.device): s for s in samples if s.processor == processor}
            counts[processor] = len(own)
            if own:
                model._processors[processor] = model._learn(list(own.values()), processor)
        facts = {"samples": counts, "devices": len({s.device for s in samples}), "xgboost": xgb.__version__}
        model.provenance = {**facts, "features": [*NAMES, *TERMS], **(provenance or {})}
        return model

    def _learn(self, samples: Sequence[Sample], processor: Processor) -> _Processor:
        measured = {s.workload.key: (s.ms, s.sigma) for s in samples if s.device == self.device}
        finite = [s for s in samples if 0 < s.ms < math.inf]
        if not finite:
            return _Processor(measured, None, Calibration({}, {}, Trust()))
        by_device: dict[DeviceFacts, list[Sample]] = {}
        for sample in finite:
            by_device.setdefault(sample.device, []).append(sample)
        parts = [self._describer(processor, facts)([s.workload for s in own]) for facts, own in by_device.items()]
        ordered = [s for own in by_device.values() for s in own]
        log_ms = np.log(np.array([s.ms for s in ordered], dtype=np.float64))
        described = joined(parts)
        noise = np.array([s.sigma for s in ordered], dtype=np.float64)
        learned, left_out = learn(described, log_ms, [shape_of(s.workload) for s in ordered], noise)
        missed = log_ms - learned.log_ms(described)
        here = [i for i, s in enumerate(ordered) if s.device == self.device]
        at = np.array(here, dtype=np.intp)
        own = calibrate([ordered[i].workload for i in here], log_ms[at], missed[at], left_out[at])
        return _Processor(measured, learned, own)

    def _describer(self, processor: Processor, device: DeviceFacts) -> Describer:
        if (processor, device) not in self._describers:
            self._describers[processor, device] = Describer(self.tunings, processor, device)
        return self._describers[processor, device]

    def predict(
        self, workloads: Sequence[Workload], processor: Processor, device: DeviceFacts | None = None
    ) -> NDArray[np.float64]:
        """Milliseconds, shape (workloads,); infinite for operators that failed on ``processor``, and for all if every
        measurement there failed.

        For another ``device`` than the model's own nothing is measured: all is learned.
        Raises :class:`UserError` if there are no samples of ``processor``.
        """
        return self._answer(workloads, processor, device, sure=False)[0]

    def cautious(self) -> CostModel:
        """This model with :data:`CAUTION` on pieces that were not measured, for a planner's last word."""
        return CostModel(self._processors, self.provenance, self.device, self.tunings, CAUTION)

    def estimate(
        self, workloads: Sequence[Workload], processor: Processor, device: DeviceFacts | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(ms, sigma), each of shape (workloads,): :meth:`predict`, and the deviation of log-time (measured if ms is)."""
        return self._answer(workloads, processor, device, sure=True)

    def _answer(
        self, workloads: Sequence[Workload], processor: Processor, device: DeviceFacts | None, sure: bool
    ) -> tuple[Rows, Rows]:
        fitted = self._processors.get(processor)
        if fitted is None:
            raise UserError(
                f"the cost model knows nothing of the {processor}",
                f"samples: {self.provenance.get('samples')}",
                "measure the device: tvm-codl measure MODEL",
            )
        if fitted.learned is None:
            return np.full(len(workloads), math.inf), np.full(len(workloads), LEAST_SIGMA)
        facts = device or self.device
        described = self._describer(processor, facts)(workloads)
        if sure:
            log_ms, spread = fitted.learned.estimate(described)
        else:
            log_ms, spread = fitted.learned.log_ms(described), np.full(len(workloads), LEAST_SIGMA)
        if facts != self.device:
            return np.exp(log_ms), spread
        keys, wholes, axes, sizes = _places(workloads)
        # Pieces of an operator that cannot run do not run either.
        failed = {key for key, (ms, _) in fitted.measured.items() if not math.isfinite(ms)}
        pieces = np.array([i for i, axis in enumerate(axes) if axis], dtype=np.intp)
        if len(pieces):
            places: list[Place] = [(wholes[i], axes[i]) for i in pieces.tolist()]
            moved = fitted.calibration.move(places, sizes[pieces], log_ms[pieces], spread[pieces])
            log_ms[pieces], spread[pieces] = moved[0] + math.log(self._caution), moved[1]
        ms = np.exp(log_ms)
        for i, key in enumerate(keys):
            if key in fitted.measured:
                ms[i], spread[i] = fitted.measured[key]
            elif failed and wholes[i] in failed:
                ms[i] = math.inf
        return ms, spread

    def steps(self, workloads: Sequence[Workload]) -> list[dict[str, int]]:
        """For each operator, the tile sizes of its kernels by axis: cuts at their multiples leave no tails."""
        steps: list[dict[str, int]] = [{} for _ in workloads]
        for processor in PROCESSORS:
            s = self._describer(processor, self.device).schedules(workloads)
            tiled = (s.task == CONVOLUTION) | (s.task == PRODUCT)
            channels = np.where(tiled, s.lanes * s.blocks, np.where(s.task == STRIPS, s.lanes, 0)).tolist()
            rows = np.where(s.task != NONE, s.rows, 0).tolist()
            for step, c, r in zip(steps, channels, rows, strict=True):
                for axis, size in (("channels", c), ("columns", c), ("height", r)):
                    if size and max(size, step.get(axis, 1)) % min(size, step.get(axis, size)) == 0:
                        step[axis] = max(size, step.get(axis, 1))
        return steps

    def gpu_variants(self, workloads: Sequence[Workload]) -> list[str]:
        """For each operator, which variant of its kernel the GPU runs, and why."""
        return [variant.words for variant in self._describer("gpu", self.device).variants(workloads)]

    def measured(self, key: str, processor: Processor) -> bool:
        """Whether :meth:`predict` returns a measured time for the workload of that key."""
        return processor in self._processors and key in self._processors[processor].measured

    def save(self, path: str | Path) -> None:
        """One JSON file, with the trees in xgboost's own JSON."""
        value = {
            "format": FORMAT,
            "provenance": self.provenance,
            "device": self.device,
            "tunings": self.tunings,
            "processors": {name: _to_json(fitted) for name, fitted in self._processors.items()},
        }
        Path(path).write_bytes(msgspec.json.encode(value))

    @classmethod
    def load(cls, path: str | Path) -> CostModel:
        """Raises :class:`UserError` for a file that is no cost model, or one of other features."""
        try:
            value = msgspec.json.decode(Path(path).read_bytes())
            if value["format"] != FORMAT or value["provenance"]["features"] != [*NAMES, *TERMS]:
                raise ValueError("it was made by another version of tvm_codl")
            fitted = {name: _from_json(part) for name, part in value["processors"].items() if name in PROCESSORS}
            device = msgspec.convert(value["device"], DeviceFacts)
            return cls(fitted, value["provenance"], device, msgspec.convert(value["tunings"], Tunings))
        except (OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError, xgb.core.XGBoostError) as error:
            raise UserError(
                f"{path} cannot be used as a cost model", str(error) or repr(error), "train again: tvm-codl train"
            ) from error


def _places(workloads: Sequence[Workload]) -> tuple[list[str], list[str], list[str], Rows]:
    """(keys, keys of their operators, axes, units along them) of workloads."""
    if isinstance(workloads, Pieces):
        names = [whole.key for whole in workloads.wholes]
        wholes = [names[place] for place in workloads.whole_of]
        return workloads.keys, wholes, workloads.axes, workloads.sizes.astype(np.float64)
    return (
        [w.key for w in workloads],
        [(w.whole or w).key for w in workloads],
        [w.cut.axis if w.cut else "" for w in workloads],
        np.array([w.cut.hi - w.cut.lo if w.cut else 1 for w in workloads], dtype=np.float64),
    )


def _to_json(fitted: _Processor) -> dict[str, Any]:
    calibration = fitted.calibration
    return {
        "measured": {key: value for key, value in fitted.measured.items() if math.isfinite(value[0])},
        # JSON has no infinity.
        "failed": [key for key, value in fitted.measured.items() if not math.isfinite(value[0])],
        "learned": fitted.learned and fitted.learned.to_json(),
        "curves": [[key, axis, curve] for (key, axis), curve in calibration.curves.items()],
        "wholes": calibration.wholes,
        "trust": calibration.trust,
    }


def _from_json(value: Mapping[str, Any]) -> _Processor:
    measured = msgspec.convert(value["measured"], dict[str, tuple[float, float]])
    failed = msgspec.convert(value["failed"], list[str])
    curves = msgspec.convert(value["curves"], list[tuple[str, str, Curve]])
    return _Processor(
        {**measured, **dict.fromkeys(failed, (math.inf, UNSURE_SIGMA))},
        None if value["learned"] is None else Learned.from_json(value["learned"]),
        Calibration(
            {(key, axis): curve for key, axis, curve in curves},
            msgspec.convert(value["wholes"], dict[str, float]),
            msgspec.convert(value["trust"], Trust),
        ),
    )
