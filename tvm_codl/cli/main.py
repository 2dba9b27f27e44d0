"""``tvm-codl``: the list of commands, and how errors become exit codes."""

from __future__ import annotations

import errno
import importlib
import os
import shlex
import sys
from pathlib import Path

import click

from tvm_codl.cli.stop import Stop
from tvm_codl.errors import CodlError, UsageError, UserError

COMMANDS = {
    "doctor": "Check that everything needed is installed, and say how to fix what is not.",
    "serve": "Start the reference phone's RPC server.",
    "device": "Manage phones on adb: push, start, forward, info.",
    "check": "Compare an imported model with the reference, operator by operator.",
    "measure": "Measure a model's operators on a phone, where it could change the plan.",
    "tune": "Tune the kernels of a model, or of a plan, on a phone with AutoTVM.",
    "plan": "Measure a phone and plan where each operator of a model runs.",
    "plans": "Compare plans, and check those that were edited.",
    "build": "Build one shared library that runs a model on both processors.",
    "run": "Run a model or a library on a phone.",
    "train": "Fit the cost model to the records.",
    "evaluate": "Evaluate predicted operator times beside simpler models.",
    "records": "List, export, import and merge measurements.",
    "cache": "Show what is kept of earlier builds, or clear it.",
    "bench": "Compare CPU only, GPU only and co-execution in one interleaved run.",
    "report": "Write a page about a model and its plan: placements, reasons, a run, what if.",
    "rank": "Rank models by latency: predict all, measure the best few.",
    "demo": "Detect text with PP-OCRv4, then run ResNet-18, on both processors at once.",
}
#: What ``tvm-codl`` alone shows: the commands to begin with, each with arguments that need no phone.
FIRST = {"bench": "zoo:resnet18", "plan": "zoo:resnet18 --explain", "run": "zoo:resnet18"}
INTERRUPTED = 130
STOP = Stop()


class Commands(click.Group):
    """Imports a command's file when it is called: ``--help`` and ``doctor`` must work where TVM does not."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"tvm_codl.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tvm_codl")
def cli() -> None:
    """Run every operator of a neural network on a phone's CPU and GPU at the same time."""


def main(command: click.Command = cli, name: str = "tvm-codl") -> None:
    """Runs the command line and exits: 0, 1 the user's mistake, 2 usage, 3 the device, 4 a failed check.

    Another script gets the same with ``main(command, "name.py")``.
    """
    STOP.catch()
    sys.exit(run(sys.argv[1:], command, name))


def run(arguments: list[str], command: click.Command = cli, name: str = "tvm-codl") -> int:
    """Runs a command line and returns its exit code; messages go to stderr."""
    try:
        try:
            code = command.main(arguments, prog_name=name, standalone_mode=False)
        except BaseException:
            # Native code that a signal interrupts raises errors of its own.
            if STOP.number == 0:
                raise
            click.echo(STOP.words, err=True)
            return STOP.code
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(_first_steps(name) if error.ctx.command is cli else error.format_message(), err=True)
        return UsageError.exit_code
    except click.ClickException as error:
        error.show()
        return UsageError.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our stdout went away; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ImportError as error:
        if not (error.name or "").startswith("tvm") or (error.name or "").startswith("tvm_codl"):
            raise
        return _report(UserError("a TVM with Relay cannot be imported", str(error), "tvm-codl doctor"))
    except CodlError as error:
        return _report(error)
    except OSError as error:
        # The dynamic linker's error has no number: TVM's wheel does not declare the LLVM that it needs.
        if error.errno is None and "shared object" in str(error):
            return _report(UserError("a TVM with Relay cannot be imported", str(error), "tvm-codl doctor"))
        file_error = _file_error(error)
        if file_error is None:
            raise
        return _report(file_error)


def _first_steps(name: str) -> str:
    lines = [
        f"Usage: {name} COMMAND [ARGS]...",
        "",
        "Commands to begin with; without a phone they run on this machine:",
        "",
    ]
    for command, arguments in FIRST.items():
        lines += [f"  {command:5}  {COMMANDS[command]}", f"         {name} {command} {arguments}", ""]
    return "\n".join([*lines, f"{name} --help lists all commands. {name} doctor checks the installation."])


def _file_error(error: OSError) -> UserError | None:
    """The user's error for an error that names a file, or for a full disk; None for any other."""
    named = [os.fsdecode(x) for x in (error.filename2, error.filename) if isinstance(x, (str, bytes, os.PathLike))]
    evidence = f"{type(error).__name__}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        folder = f" {shlex.quote(str(Path(named[0]).parent))}" if named else ""
        return UserError(
            f"{named[0]} cannot be written" if named else "a file cannot be written", evidence, f"df -h{folder}"
        )
    if not named:
        return None
    look = shlex.quote(str(Path(named[0]).parent))
    return UserError(f"{named[0]} cannot be used", evidence, f"ls -ld {look} {shlex.quote(named[0])}")


def _report(error: CodlError) -> int:
    click.echo(f"error: {error}", err=True)
    return error.exit_code
