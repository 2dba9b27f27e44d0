"""Prepared: a model as what can be planned, split and built."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import Axis, axes

if TYPE_CHECKING:
    import tvm

    from tvm_codl.relay.model import LoadedModel


@dataclass(frozen=True)
class Prepared:
    """A network ready to be planned.  ``axes``: by operator id, the axes along which it can be split."""

    model: LoadedModel
    graph: OpGraph
    weights: Mapping[str, np.ndarray]
    module: tvm.IRModule
    axes: Mapping[int, Mapping[str, Axis]]

    @functools.cached_property
    def name(self) -> str:
        return self.model.name

    @functools.cached_property
    def digest(self) -> str:
        """Of all that its libraries follow from: operators, weights and the outputs' names."""
        digest = hashlib.sha256(msgspec.json.encode((self.graph, self.model.outputs)))
        for key, value in self.weights.items():
            digest.update(key.encode() + np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()

    @functools.cached_property
    def samples(self) -> dict[str, np.ndarray]:
        """:meth:`.LoadedModel.sample_inputs`."""
        return self.model.sample_inputs()

    @functools.cached_property
    def answers(self) -> list[np.ndarray]:
        """:attr:`.LoadedModel.sample_answers`."""
        return self.model.sample_answers

    @functools.cached_property
    def quanta(self) -> tuple[float, ...]:
        """:attr:`.LoadedModel.quanta`."""
        return self.model.quanta


@dataclass(frozen=True)
class Known:
    """What a plan's libraries follow from, and what checks their answers: the fields of :class:`Prepared` of these names."""

    name: str
    graph: OpGraph
    digest: str
    samples: dict[str, np.ndarray]
    answers: list[np.ndarray]
    quanta: tuple[float, ...]


class LatePrepared(Prepared):
    """A network of which so much is known.  It is imported when something else of it is asked for."""

    def __init__(self, known: Known, load: Callable[[], Prepared]) -> None:
        self.__dict__.update(vars(known), _load=load)
        self.__dict__["axes"] = {o.id: axes(o, known.graph) for o in known.graph.operators}

    def __getattr__(self, name: str) -> Any:
        """Only of what is not there."""
        if name not in {field.name for field in fields(Prepared)}:
            raise AttributeError(name)
        loaded = self._load()
        self.__dict__.update(model=loaded.model, weights=loaded.weights, module=loaded.module)
        return self.__dict__[name]
