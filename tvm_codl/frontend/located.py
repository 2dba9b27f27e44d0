"""Located: where a network is, before it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tvm_codl.frontend import zoo
from tvm_codl.graph.opgraph import Shape

ZOO_PREFIX = "zoo:"


@dataclass(frozen=True)
class Located:
    """A network's file, its name, the shapes that are given, and what makes a meaningful input."""

    path: Path
    name: str
    shapes: dict[str, Shape]
    sample: Callable[[Shape], np.ndarray] | None


def locate(source: str, shapes: Mapping[str, Shape]) -> Located:
    """Where a network is.  Makes the file of a zoo's network; raises :class:`UserError` for an unknown zoo name."""
    if source.startswith(ZOO_PREFIX):
        entry = zoo.entry(source.removeprefix(ZOO_PREFIX))
        return Located(entry.path(), entry.name, {**entry.shapes, **shapes}, entry.sample)
    return Located(Path(source), Path(source).stem, dict(shapes), None)
