"""OutputFile: the type of the options that name a file to write."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click


class OutputFile(click.Path[Path]):
    """A file that can be written, checked before any work: a usage error where it is a folder or not writable, or where its
    folder is missing or not writable.

    A device or a pipe (``/dev/null``) needs no writable folder.
    """

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, readable=False, path_type=Path)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if os.path.isdir(path):
            self.fail(f"{path} is a folder; name a file in it", param, ctx)
        super().convert(value, param, ctx)
        if os.path.exists(path) and not os.path.isfile(path):
            return path
        folder = path.parent
        if not os.path.exists(folder):
            self.fail(f"the folder {folder} is not there; make it: mkdir -p {shlex.quote(str(folder))}", param, ctx)
        if not os.path.isdir(folder):
            self.fail(f"{folder} is a file, not a folder to write {path.name} into", param, ctx)
        if not os.access(folder, os.W_OK | os.X_OK):
            self.fail(f"the folder {folder} must not be written; name a file in another one", param, ctx)
        return path


OUTPUT_FILE = OutputFile()
