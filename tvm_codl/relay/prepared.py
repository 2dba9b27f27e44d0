"""Prepared: a model as what can be planned, split and built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm

from tvm_codl.graph.opgraph import OpGraph
from tvm_codl.graph.split import Axis
from tvm_codl.relay.model import LoadedModel


@dataclass(frozen=True)
class Prepared:
    """A network ready to be planned.  ``axes``: by operator id, the axes along which it can be split."""

    model: LoadedModel
    graph: OpGraph
    weights: Mapping[str, np.ndarray]
    module: tvm.IRModule
    axes: Mapping[int, Mapping[str, Axis]]

    @property
    def name(self) -> str:
        return self.model.name
