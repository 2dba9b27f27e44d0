"""The options that several commands share.  Words follow tvmc."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from tvm_codl.errors import CodlError, UsageError
from tvm_codl.measure.budget import USUAL_S
from tvm_codl.paths import default_records

if TYPE_CHECKING:
    from tvm_codl.api import Session
    from tvm_codl.device.reference.local import LocalPhone
    from tvm_codl.device.spec import Spec
    from tvm_codl.plan.plan import Plan
    from tvm_codl.relay.prepared import Prepared

Command = Callable[..., Any]
SHAPE = re.compile(r"(?P<name>.+?)[:=]\[?(?P<sizes>\d+(?:,\d+)*)\]?")
FILE = click.Path(dir_okay=False, path_type=Path)

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
records_option = click.option(
    "--records", type=FILE, default=default_records, show_default="in the cache folder",
    help="The file that keeps the measurements.",
)  # fmt: skip
plan_option = click.option(
    "--plan", "given", default="", metavar="PLAN", help="A plan file, cpu-only or gpu-only.  [default: make one]"
)
tuning_records_option = click.option(
    "--tuning-records", type=FILE, help="AutoTVM records to build with, beside the shipped ones."
)
soc_option = click.option("--soc", type=FILE, help="GPU facts in CoDL's YAML, in place of what the phone reports.")


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


shape_option = click.option(
    "--shape", type=ShapeType(), multiple=True, help="Shape of an input that is dynamic in the file: x:[1,3,320,320]."
)


def options(*each: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator; the help shows them in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(each):
            command = option(command)
        return command

    return decorate


#: Where :func:`read_network` finds ``--no-check``.
_NO_CHECK = "tvm_codl.no_check"


def _note_no_check(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[_NO_CHECK] = value


no_check_option = click.option(
    "--no-check", is_flag=True, expose_value=False, callback=_note_no_check,
    help="Do not compare the imported network with the reference first.",
)  # fmt: skip

_EFFORT = "tvm_codl.effort."


def _note(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    context.meta[f"{_EFFORT}{parameter.name}"] = value


#: For :func:`effort`.
effort_options = options(
    click.option(
        "--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", expose_value=False,
        callback=_note, help="End the command then, with the best plan that is known.",
    ),
    click.option(
        "--again", is_flag=True, expose_value=False, callback=_note,
        help="Plan anew, although this network was planned on this phone before.",
    ),
)  # fmt: skip


def effort() -> dict[str, Any]:
    """What planning takes besides a budget: ``limit_s``, the seconds until ``--time-limit`` is over, and ``again``."""
    from tvm_codl.cli.output import elapsed_s

    meta = click.get_current_context().meta
    limit, again = meta.get(f"{_EFFORT}time_limit"), meta.get(f"{_EFFORT}again", False)
    return {"limit_s": math.inf if limit is None else max(limit - elapsed_s(), 0.0), "again": again}


def complete_file(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shell completes files itself.  Not the zoo's names: they are known only after TVM's import, in seconds."""
    return [CompletionItem(incomplete, type="file")]


#: MODEL, ``--shape`` and ``--no-check``; the command gets ``source`` and ``shape``.
model_options = options(
    click.argument("source", metavar="MODEL", shell_complete=complete_file), shape_option, no_check_option
)


@dataclass(frozen=True)
class PhoneChoice:
    """The phone that the command line names, and the files that go with it; ``named`` is False for the default phone."""

    spec: Spec | LocalPhone
    named: bool
    timeout_s: float
    phones: int
    records: Path
    tuning_records: Path | None
    soc: Path | None = None

    def start(self) -> None:
        """Starts a phone on this machine ahead of :meth:`connect`, which tells what keeps it from starting."""
        from tvm_codl.device.reference.local import LocalPhone

        if isinstance(self.spec, LocalPhone):
            click.get_current_context().call_on_close(self.spec.stop)
            with contextlib.suppress(CodlError):
                self.spec.start()

    def connect(self) -> AbstractContextManager[Session]:
        from tvm_codl import api
        from tvm_codl.cli.output import talk

        return api.connect(
            self.spec, records=self.records, tuning_records=self.tuning_records, log=talk, timeout_s=self.timeout_s,
            phones=self.phones, soc=self.soc,
        )  # fmt: skip

    @contextlib.contextmanager
    def connect_later(self) -> Iterator[Callable[[], Session]]:
        """A function that gives the session, and connects when it is first called."""
        with contextlib.ExitStack() as stack:
            yield functools.cache(lambda: stack.enter_context(self.connect()))


def phone_options(command: Command) -> Command:
    """Which phone; the command gets ``phone``, a :class:`PhoneChoice`, with ``--records`` and ``--tuning-records`` in it."""

    @functools.wraps(command)
    def with_phone(
        *,
        rpc_tracker: str,
        rpc_proxy: str,
        rpc_key: str,
        rpc_timeout: float,
        rpc_phones: int,
        local: bool,
        soc: Path | None = None,
        records: Path | None = None,
        tuning_records: Path | None = None,
        **rest: Any,
    ) -> Any:
        if local and (rpc_tracker or rpc_proxy):
            raise UsageError("--local excludes --rpc-tracker and --rpc-proxy")
        if rpc_phones > 1 and not rpc_tracker:
            raise UsageError("several phones are found through a tracker", "--rpc-tracker is missing")
        from tvm_codl.device.reference.local import LocalPhone
        from tvm_codl.device.spec import Local, parse_spec

        place = parse_spec(rpc_tracker, rpc_proxy, rpc_key)
        spec = LocalPhone() if isinstance(place, Local) else place
        named = bool(rpc_tracker or rpc_proxy)
        files = (records or default_records(), tuning_records, soc)
        return command(phone=PhoneChoice(spec, named, rpc_timeout, rpc_phones, *files), **rest)

    return options(
        click.option("--local", is_flag=True, help="A reference phone on this machine (the default)."),
        click.option("--rpc-tracker", default="", metavar="HOST:PORT", help="The tracker that knows the phone."),
        click.option("--rpc-proxy", default="", metavar="HOST:PORT", help="The proxy that the phone is behind."),
        click.option("--rpc-key", default="", metavar="KEY", help="The key that the phone serves."),
        click.option(
            "--rpc-timeout", type=float, default=20.0, show_default=True, help="Seconds to wait for the phone."
        ),
        click.option(
            "--rpc-phones", type=click.IntRange(1), default=1, show_default=True, metavar="N",
            help="Measure on up to N phones with this key at once (through a tracker).",
        ),
        soc_option,
    )(with_phone)  # fmt: skip


def given_options() -> dict[str, str]:
    """What the command line that runs has given: by each parameter's name its option, spelled out."""
    context = click.get_current_context()
    return {
        str(parameter.name): max(parameter.opts, key=len)
        for parameter in context.command.params
        if context.get_parameter_source(str(parameter.name)) == click.core.ParameterSource.COMMANDLINE
    }


#: What a plan rests on; the command gets ``budget``, and its phone the two files of records.
measuring_options = options(
    click.option("--budget", type=float, default=USUAL_S, show_default=True, help="Seconds to measure pieces for."),
    records_option,
    tuning_records_option,
)

#: What a command has that runs a plan; it gets ``source``, ``shape``, ``phone``, ``budget``, ``given`` and ``as_json``.
planning_options = options(model_options, phone_options, measuring_options, effort_options, plan_option, json_option)

#: Whose records to learn from; the command gets ``records``, ``device``, ``build`` and ``tuning_records``.
chosen_records_options = options(
    records_option,
    click.option(
        "--device", default="", metavar="NAME", help="The phone to predict.  [default: the one measured last]"
    ),
    click.option("--build", default="", metavar="ID", help="The build whose records to use.  [default: the newest]"),
    click.option("--tuning-records", type=FILE, help="AutoTVM records that the build used, beside the shipped ones."),
)

#: How much to tune and to measure, and the folder of the results; the command gets ``trials``, ``budget``, ``output``.
#: For scripts that tune one model; together with :func:`phone_options` they need no argument of their own.
tuning_options = options(
    click.option(
        "--trials", type=click.IntRange(1), default=128, show_default=True, help="Configurations to try for each kernel."
    ),
    click.option(
        "--budget", type=float, default=300.0, show_default=True, help="Seconds to measure pieces of operators for."
    ),
    click.option(
        "-o", "--output", type=click.Path(file_okay=False, path_type=Path), default=".", show_default=True,
        help="Folder of the results.",
    ),
)  # fmt: skip


def read_network(
    source: str, shape: tuple[tuple[str, tuple[int, ...]], ...], ahead: Callable[[], None] | None = None
) -> Prepared:
    """The network of an ONNX or TFLite file or ``zoo:NAME``, ready to plan.

    Its import is checked where the command has ``--no-check`` and it is not given, by another process, beside which ``ahead``
    runs here.  Raises :class:`~tvm_codl.errors.CheckFailed` for one that was imported wrongly.
    """
    from tvm_codl.cli.output import talk
    from tvm_codl.frontend.load import load_model
    from tvm_codl.measure.checked_import import check_import
    from tvm_codl.measure.known_network import KnownNetwork
    from tvm_codl.relay.pipeline import prepare

    model = load_model(source, dict(shape))
    prepared = functools.cache(functools.partial(prepare, model))
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(_NO_CHECK) is False:
        check_import(model, log=talk, meanwhile=lambda: (prepared(), ahead and ahead()))
        KnownNetwork(source, dict(shape)).keep(prepared())
    return prepared()


def read_operators(
    source: str, shape: tuple[tuple[str, tuple[int, ...]], ...], ahead: Callable[[], None] | None = None
) -> Prepared:
    """As :func:`read_network`, for a command that may need the operators alone: a network that is known is imported when
    the command asks for more."""
    from tvm_codl.measure.known_network import KnownNetwork

    load = functools.partial(read_network, source, shape, ahead)
    return KnownNetwork(source, dict(shape)).read(load) or load()


def named_plan(name: str, prepared: Prepared) -> Plan:
    """The plan in the file ``name``, or ``cpu-only`` or ``gpu-only``, verified for the network."""
    from tvm_codl.plan.files import load_plan
    from tvm_codl.plan.plan import uniform_plan
    from tvm_codl.plan.verify import verify_plan

    if name in ("cpu-only", "gpu-only"):
        return uniform_plan(prepared.graph, "cpu" if name == "cpu-only" else "gpu", prepared.name)
    plan = load_plan(name)
    verify_plan(plan, prepared.graph, prepared.axes)
    return plan
