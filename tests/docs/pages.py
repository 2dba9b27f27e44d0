"""The fenced blocks of the pages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """``kind`` is what stands behind the fence; shell commands have nothing there."""

    page: str
    kind: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Its lines without blank ones and whole-line comments; those that a backslash continues are one."""
        joined = self.text.replace("\\\n", " ").splitlines()
        return [line for line in joined if line.strip() and not line.lstrip().startswith("#")]


def blocks(*kinds: str) -> list[Block]:
    """The blocks of these kinds, in order."""
    found = [Block(page.name, *match) for page in PAGES for match in _BLOCK.findall(page.read_text(encoding="utf-8"))]
    return [block for block in found if block.kind in kinds]
