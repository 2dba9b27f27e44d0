"""What MkDocs does not know by itself: pages from outside ``docs/``, the commands' names, the roles in docstrings."""

from __future__ import annotations

import re
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tvm_codl.cli.main import COMMANDS, cli

ROOT = Path(__file__).parents[1]
#: Pages outside ``docs/``, and the files that these link.
OUTSIDE = (
    "CONTRIBUTING.md",
    "benchmarks/**/*.md",
    "rpc_apps/**/*.md",
    "tutorials/**/*.md",
    "tutorials/**/*.py",
    "tutorials/**/*.java",
)


def on_config(config: MkDocsConfig) -> None:
    """The reference names a command by itself, ``tvm-codl`` by the file that it is in."""
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        command.name = name


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages outside ``docs/`` at the paths that they have in the repository."""
    for path in sorted(path for pattern in OUTSIDE for path in ROOT.glob(pattern)):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as the site has them: ``docs/`` is its top, beside the other folders."""
    if (Path(config.docs_dir) / page.file.src_uri).exists():
        return re.sub(r"\]\(\.\./", "](", markdown)
    return re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Docstrings name other objects by roles, which Markdown does not know."""
    return re.sub(r":(?:class|func|meth|mod):<code>[~.]*(?:[\w.]+\.)?(\w+)</code>", r"<code>\1</code>", html)
