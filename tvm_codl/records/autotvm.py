"""Lines of AutoTVM's log: kernel tuning records, pieces and device profiles as JSON, one a line, without TVM.

The format is that of tvm/autotvm/record.py, version 0.2; TVM's own reader accepts every line written here.  Lines of
version 0.1, which that reader skips, are read and become version 0.2 (the template's key goes into the configuration).
What AutoTVM has no place for goes where its reader does not look: device and profile of a kernel record under the key
``codl``, profiles and whole plans in comments.  A piece is a task ``codl.piece`` whose arguments are the whole record, so that a file
which went through AutoTVM's reader and writer is still complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tvm_codl.records.canonical import canonical, dumped, parsed
from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import Piece, Record

PIECE = "codl.piece"
_PROFILE = "#codl.profile "
_PLAN = "#codl.plan "
_VERSION = 0.2
#: AutoTVM writes this in place of the times of a failure.
_FAILED = [1e9]


class Profile(msgspec.Struct, frozen=True):
    """A device's profile as canonical JSON text."""

    json: str


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


class _PieceArguments(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    workload: str
    kind: str
    axis: str
    lo: int
    hi: int
    extent: int
    processor: Literal["cpu", "gpu"]
    device: str
    build: str
    mode: Literal["alone", "shared"]
    times_ms: tuple[float, ...]
    error: str
    error_no: int
    profile: str
    schedule: str


def kernel_line(record: KernelRecord) -> str:
    """One line, without its end; AutoTVM's ``decode`` reads it."""
    extra = {name: value for name in ("device", "profile") if (value := getattr(record, name))}
    line: dict[str, Any] = {
        "input": [record.target, record.task, json.loads(record.args), {}],
        "config": _in_order(json.loads(record.config)),
        "result": [list(record.costs) or _FAILED, record.error_no, record.all_cost, record.timestamp],
        "version": _VERSION,
        "tvm_version": record.tvm_version,
    }
    return json.dumps(line | ({"codl": extra} if extra else {}))


def piece_line(record: Record) -> str:
    """One line, without its end.  The target names the processor alone, since a record knows its build by a digest."""
    piece, seconds = record.piece, [time / 1e3 for time in record.times_ms]
    arguments = _PieceArguments(
        record.workload, piece.kind, piece.axis, piece.lo, piece.hi, piece.extent, record.processor, record.device,
        record.build, record.mode, record.times_ms, record.error, record.error_no, record.profile, record.schedule,
    )  # fmt: skip
    line = {
        "input": ["llvm" if record.processor == "cpu" else "opencl", PIECE, msgspec.to_builtins(arguments), {}],
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
    return _PLAN + dumped(msgspec.to_builtins(record))


def read_line(line: str) -> Record | KernelRecord | PlanRecord | Profile | None:
    """What a line says; None for an empty line or a comment.

    Raises :class:`ValueError` (msgspec's errors are such) for a line that is none of AutoTVM's.  Its pickled lines are
    refused: unpickling runs what the file says.
    """
    text = line.strip()
    if text.startswith(_PROFILE):
        value = parsed(text.removeprefix(_PROFILE))
        if not isinstance(value, dict):
            raise ValueError("a profile is a JSON object")
        return Profile(dumped(value))
    if text.startswith(_PLAN):
        return msgspec.convert(parsed(text.removeprefix(_PLAN)), PlanRecord)
    if not text or text.startswith("#"):
        return None
    row = parsed(text)
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    if row.get("v") == 0.1:
        return _kernel_of(_updated(msgspec.convert(row, _Old)))
    if row.get("version") != _VERSION:
        raise ValueError(f"version {row.get('version', row.get('v'))!r} of AutoTVM's log, only 0.1 and 0.2 are known")
    found = msgspec.convert(row, _Line)
    return _piece_of(found) if found.input[1] == PIECE else _kernel_of(found)


def _in_order(config: dict[str, Any]) -> dict[str, Any]:
    """As AutoTVM writes it, so that what it wrote comes out as it was."""
    return {name: config[name] for name in ("index", "code_hash", "entity") if name in config} | config


def _updated(old: _Old) -> _Line:
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
        args=dumped(args),
        config=dumped(_checked(line.config)),
        costs=() if error_no else msgspec.convert(costs, tuple[float, ...]),
        error_no=error_no,
        all_cost=all_cost,
        timestamp=timestamp,
        device=line.codl.device,
        profile=line.codl.profile,
        tvm_version=line.tvm_version,
    )


def _checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """What AutoTVM's reader needs is there, whatever else is."""
    known = msgspec.convert(config, _Config)
    return {**config, "code_hash": known.code_hash}


def _piece_of(line: _Line) -> Record:
    found = msgspec.convert(line.input[2], _PieceArguments)
    return Record(
        workload=found.workload,
        piece=Piece(found.kind, found.axis, found.lo, found.hi, found.extent),
        processor=found.processor,
        device=found.device,
        build=found.build,
        times_ms=found.times_ms,
        when=line.result[3],
        mode=found.mode,
        error=found.error,
        error_no=found.error_no,
        profile=found.profile,
        schedule=found.schedule,
    )
