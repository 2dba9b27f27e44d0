"""The static shapes of a network's inputs: the file's own, or those that the user gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tvm_codl.errors import UserError
from tvm_codl.relay.model import Shape

SAMPLE = 224  # height or width in the --shape option that an error proposes

#: For each axis its size, or None if dynamic, and its label.
Dimensions = Sequence[tuple[int | None, str]]


def fix_shapes(declared: Mapping[str, Dimensions], given: Mapping[str, Shape], path: Path) -> dict[str, Shape]:
    """The static shape of each input that the file ``declared``.

    Raises :class:`UserError` for a dynamic dimension that is not given, and for a given input or shape that contradicts
    the file.
    """
    for name, shape in given.items():
        if name not in declared:
            raise UserError(
                f"{path.name} has no input {name!r}",
                f"its inputs: {', '.join(declared)}",
                f"use e.g. --shape {next(iter(declared), 'NAME')}:[{','.join(map(str, shape))}]",
            )
        _check_given(name, shape, declared[name], path)
    missing = {name: dims for name, dims in declared.items() if name not in given and None in (d for d, _ in dims)}
    if missing:
        evidence = "; ".join(f"{name}: [{', '.join(label for _, label in dims)}]" for name, dims in missing.items())
        options = " ".join(f"--shape {name}:{_proposal(dims)}" for name, dims in missing.items())
        raise UserError(f"{path.name} has inputs of dynamic shape", evidence, f"add {options}")
    fixed = {name: tuple(size for size, _ in dims if size is not None) for name, dims in declared.items()}
    return {**fixed, **{name: tuple(shape) for name, shape in given.items()}}


def _proposal(dims: Dimensions) -> str:
    sizes = [str(size or (1 if axis == 0 else SAMPLE)) for axis, (size, _) in enumerate(dims)]
    return f"[{','.join(sizes)}]"


def _check_given(name: str, shape: Shape, dims: Dimensions, path: Path) -> None:
    agrees = len(shape) == len(dims) and all(size in (None, got) for got, (size, _) in zip(shape, dims, strict=True))
    if not agrees or any(size < 1 for size in shape):
        raise UserError(
            f"the shape {list(shape)} does not fit the input {name!r} of {path.name}",
            f"the file declares [{', '.join(label for _, label in dims)}]",
            f"use e.g. --shape {name}:{_proposal(dims)}",
        )
