"""The options that several commands share.  Words follow tvmc."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_codl.errors import UsageError

if TYPE_CHECKING:
    from tvm_codl.device.reach import Phone
    from tvm_codl.frontend.model import LoadedModel
    from tvm_codl.plan.plan import Plan
    from tvm_codl.workflow import Prepared

Command = Callable[..., Any]
SHAPE = re.compile(r"(?P<name>.+?)[:=]\[?(?P<sizes>\d+(?:,\d+)*)\]?")


class ShapeType(click.ParamType[Any]):
    """``name:[1,3,224,224]`` or ``name=1,3,224,224``."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        match = SHAPE.fullmatch(value.replace(" ", ""))
        if match is None:
            self.fail(f"{value!r} is not name:[1,3,224,224] or name=1,3,224,224", param, ctx)
        return match["name"], tuple(int(size) for size in match["sizes"].split(","))


def model_options(command: Command) -> Command:
    """MODEL and ``--shape``; the command gets ``source`` and ``shape``."""
    command = click.option(
        "--shape",
        type=ShapeType(),
        multiple=True,
        help="Shape of an input that is dynamic in the file: x:[1,3,320,320].",
    )(command)
    return click.argument("source", metavar="MODEL")(command)


def phone_options(command: Command) -> Command:
    """Which phone; the command gets ``reach``, a function that opens a session on it."""

    @functools.wraps(command)
    def with_reach(
        *, rpc_tracker: str, rpc_proxy: str, rpc_key: str, rpc_timeout: float, local: bool, **rest: Any
    ) -> Any:
        if local and (rpc_tracker or rpc_proxy):
            raise UsageError("--local excludes --rpc-tracker and --rpc-proxy")

        @contextlib.contextmanager
        def reach() -> Iterator[Phone]:
            from tvm_codl.device.reach import connect, phone_from_options

            with connect(phone_from_options(rpc_tracker, rpc_proxy, rpc_key), timeout_s=rpc_timeout) as phone:
                yield phone

        return command(reach=reach, **rest)

    for option in (
        click.option(
            "--rpc-timeout", type=float, default=20.0, show_default=True, help="Seconds to wait for the phone."
        ),
        click.option("--rpc-key", default="", metavar="KEY", help="The key that the phone serves."),
        click.option("--rpc-proxy", default="", metavar="HOST:PORT", help="The proxy that the phone is behind."),
        click.option("--rpc-tracker", default="", metavar="HOST:PORT", help="The tracker that knows the phone."),
        click.option("--local", is_flag=True, help="A reference phone on this machine (the default)."),
    ):
        with_reach = option(with_reach)
    return with_reach


def measuring_options(command: Command) -> Command:
    """What a plan rests on; the command gets ``budget``, ``records`` and ``tuning_records``."""
    path = click.Path(dir_okay=False, path_type=Path)
    for option in (
        click.option("--tuning-records", type=path, help="AutoTVM records to build with, beside the shipped ones."),
        click.option(
            "--records", type=path, help="The file that keeps the measurements.  [default: in the cache folder]"
        ),
        click.option("--budget", type=float, default=120.0, show_default=True, help="Seconds to measure pieces for."),
    ):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def load(source: str, shape: tuple[tuple[str, tuple[int, ...]], ...]) -> LoadedModel:
    from tvm_codl.frontend.load import load_model

    return load_model(source, dict(shape))


def named_plan(name: str, prepared: Prepared) -> Plan:
    """The plan in the file ``name``, or ``cpu-only`` or ``gpu-only``, verified for the network."""
    from tvm_codl.plan.explain import uniform_plan
    from tvm_codl.plan.files import load_plan
    from tvm_codl.plan.verify import verify_plan

    if name in ("cpu-only", "gpu-only"):
        return uniform_plan(prepared.graph, "cpu" if name == "cpu-only" else "gpu", prepared.name)
    plan = load_plan(name)
    verify_plan(plan, prepared.graph, prepared.axes)
    return plan
