"""Lines of AutoTVM's log: kernel tuning records, pieces, plans and device profiles as JSON, one a line, without TVM.

The format is version 0.2 of tvm/autotvm/record.py; TVM's own reader accepts every line.  Lines of version 0.1, which
that reader skips, become version 0.2 (the template's key goes into the configuration).  AutoTVM's reader ignores our
additions: a kernel record's device and profile under the key ``codl``, profiles and whole plans in comments.  A piece is
a task ``codl.piece`` whose arguments are the whole record: it survives AutoTVM's reader and writer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from tvm_codl.records.canonical import canonical, dump, parse
from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import Record, flatten, nest

PIECE = "codl.piece"
_PROFILE = "#codl.profile "
_PLAN = "#codl.plan "
_VERSION = 0.2
#: AutoTVM writes this in place of the times of a failure.
_FAILED = [1e9]


class Profile(msgspec.Struct, frozen=True):
    """A device's profile as canonical JSON text."""

    json: str


Entry = Record | KernelRecord | PlanRecord | Profile


class _Config(msgspec.Struct):
    index: int | None
    entity: list[tuple[str, Literal["sp", "re", "an", "ot"], Any]]
    code_hash: str | None = None


class _Extra(msgspec.Struct):
    device: str = ""
    profile: str = ""


class _Line(msgspec.Struct):
    """Version 0.2."""

    input: tuple[str, str, list[Any], dict[str, Any]]
    config: dict[str, Any]
    result: tuple[Any, int, float, float]
    tvm_version: str = ""
    codl: _Extra = msgspec.field(default_factory=_Extra)


class _Old(msgspec.Struct):
    """Version 0.1."""

    i: tuple[str, str, list[Any], dict[str, Any], Any, dict[str, Any]]
    r: tuple[Any, int, float, float]


#: A piece's task arguments; its moment is the line's.
_ARGUMENTS = (
    *("workload", "kind", "axis", "lo", "hi", "extent", "processor", "device", "build", "mode", "times_ms"),
    *("error", "error_no", "profile", "schedule"),
)


def kernel_line(record: KernelRecord) -> str:
    """One line, without its end; AutoTVM's ``decode`` reads it."""
    extra = {name: value for name in ("device", "profile") if (value := getattr(record, name))}
    line: dict[str, Any] = {
        "input": [record.target, record.task, json.loads(record.args), {}],
        "config": _sort_keys(json.loads(record.config)),
        "result": [list(record.costs) or _FAILED, record.error_no, record.all_cost, record.timestamp],
        "version": _VERSION,
        "tvm_version": record.tvm_version,
    }
    return json.dumps(line | ({"codl": extra} if extra else {}))


def piece_line(record: Record) -> str:
    """One line, without its end.  The target is the processor alone: a record has only a digest of its build."""
    seconds = [time / 1e3 for time in record.times_ms]
    fields = flatten(record)
    line = {
        "input": ["llvm" if record.processor == "cpu" else "opencl", PIECE, [fields[name] for name in _ARGUMENTS], {}],
        "config": {"index": 0, "code_hash": None, "entity": []},
        "result": [seconds if record.ok else _FAILED, record.error_no, sum(seconds), record.when],
        "version": _VERSION,
        "tvm_version": "",
    }
    return json.dumps(line)


def profile_line(json_text: str) -> str:
    """A comment to AutoTVM."""
    return _PROFILE + canonical(json_text)


def plan_line(record: PlanRecord) -> str:
    """A comment to AutoTVM."""
    return _PLAN + dump(msgspec.to_builtins(record))


def read_line(line: str) -> Entry | None:
    """A line's record or profile; None for an empty line or a comment.

    Raises :class:`ValueError` for any other line.  AutoTVM's pickled lines are refused: unpickling runs code.
    """
    text = line.strip()
    if text.startswith(_PROFILE):
        value = parse(text.removeprefix(_PROFILE))
        if not isinstance(value, dict):
            raise ValueError("a profile is a JSON object")
        return Profile(dump(value))
    if text.startswith(_PLAN):
        return msgspec.convert(parse(text.removeprefix(_PLAN)), PlanRecord)
    if not text or text.startswith("#"):
        return None
    row = parse(text)
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    if row.get("v") == 0.1:
        return _kernel_of(_upgrade(msgspec.convert(row, _Old)))
    if row.get("version") != _VERSION:
        raise ValueError(f"version {row.get('version', row.get('v'))!r} of AutoTVM's log, only 0.1 and 0.2 are known")
    converted = msgspec.convert(row, _Line)
    return _piece_of(converted) if converted.input[1] == PIECE else _kernel_of(converted)


def rows(lines: Iterable[str]) -> Iterator[tuple[int, Entry | ValueError]]:
    """(line number, its entry or error) of each line but comments and empty ones."""
    for number, line in enumerate(lines, 1):
        try:
            entry = read_line(line)
        except ValueError as error:
            yield number, error
        else:
            if entry is not None:
                yield number, entry


def _sort_keys(config: dict[str, Any]) -> dict[str, Any]:
    """In AutoTVM's own order, so that its lines come out unchanged."""
    return {name: config[name] for name in ("index", "code_hash", "entity") if name in config} | config


def _upgrade(old: _Old) -> _Line:
    target, task, args, kwargs, _, config = old.i
    names = {"i": "index", "t": "template", "c": "code_hash", "e": "entity"}
    return _Line((target, task, args, kwargs), {names.get(k, k): v for k, v in config.items()}, old.r)


def _kernel_of(line: _Line) -> KernelRecord:
    target, task, args, kwargs = line.input
    if kwargs:
        raise ValueError("keyword arguments of a task, which AutoTVM's reader would drop")
    costs, error_no, all_cost, timestamp = line.result
    return KernelRecord(
        target=target,
        task=task,
        args=dump(args),
        # AutoTVM's reader needs these fields, whatever else there is.
        config=dump({**line.config, "code_hash": msgspec.convert(line.config, _Config).code_hash}),
        costs=() if error_no else msgspec.convert(costs, tuple[float, ...]),
        error_no=error_no,
        all_cost=all_cost,
        timestamp=timestamp,
        device=line.codl.device,
        profile=line.codl.profile,
        tvm_version=line.tvm_version,
    )


def _piece_of(line: _Line) -> Record:
    return msgspec.convert(nest(dict(zip(_ARGUMENTS, line.input[2], strict=True), when=line.result[3])), Record)
