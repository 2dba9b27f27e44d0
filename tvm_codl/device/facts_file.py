"""YAML files in which a person states facts of a phone."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from tvm_codl.errors import UserError

Facts = TypeVar("Facts")


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice; plain YAML takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def parse_facts(text: str, kind: type[Facts], source: str, next: str, strict: bool = True) -> Facts:
    """The facts in YAML text (JSON is YAML too).  Without ``strict``, text such as ``1e3`` may be a number.

    Raises :class:`UserError` with the line or the field for text that is not a ``kind``.
    """
    try:
        return msgspec.convert(yaml.load(text, _Loader), kind, strict=strict)  # a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise UserError(f"{source} is not valid", f"{type(error).__name__}: {error}", next) from error


def read_facts(path: str | Path, kind: type[Facts], next: str, strict: bool = True) -> Facts:
    """:func:`parse_facts` of a file.  Raises :class:`UserError` for one that cannot be read, too."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read", str(error), next) from error
    return parse_facts(text, kind, str(path), next, strict)
