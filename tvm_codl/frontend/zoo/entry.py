"""One network of the zoo."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from tvm_codl.graph.opgraph import Shape
from tvm_codl.paths import cache_dir


@dataclass(frozen=True)
class ZooEntry:
    """``path()`` is its file, ONNX or TFLite; ``shapes`` are the default shapes of its dynamic inputs.

    ``sample(shape)`` is a meaningful input, for networks to which noise means nothing.
    """

    name: str
    path: Callable[[], Path]
    shapes: dict[str, Shape] = field(default_factory=dict)
    sample: Callable[[Shape], np.ndarray] | None = None


def build_once(
    name: str,
    build: Callable[[], onnx.ModelProto],
    version: int = 1,
    sample: Callable[[Shape], np.ndarray] | None = None,
) -> ZooEntry:
    """A network of seeded weights that this package builds once, into the cache folder.

    ``version`` is part of the file's name; raise it when ``build`` changes.
    """

    def path() -> Path:
        target = cache_dir() / "zoo" / f"{name}-{version}.onnx"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            proto = build()
            onnx.checker.check_model(proto)
            with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".part", delete=False) as part:
                part.write(proto.SerializeToString())
            os.replace(part.name, target)
        return target

    return ZooEntry(name, path, sample=sample)
