"""Rounds: how a network's predicted time changed as its pieces were measured, kept beside the record store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tvm_codl.records.lines import append_line, file_beside, read_lines


class Round(msgspec.Struct, frozen=True):
    """``gained_ms``: the last round's plan against this one's, both as predicted now.  ``moved``: operators that are
    placed otherwise than in the last round's.  ``gain_ms``: what more measuring may save at the most, on average."""

    number: int
    predicted_ms: float
    gained_ms: float
    moved: int
    measured: int
    gain_ms: float

    def __str__(self) -> str:
        moved = f"{self.moved} operators moved, {self.gained_ms:.3f} ms gained" if self.number else "first plan"
        return (
            f"round {self.number}: predicted {self.predicted_ms:.2f} ms, {moved}; "
            f"{self.measured} measurements, {self.gain_ms:.3f} ms more to gain"
        )


class StoredRounds(msgspec.Struct, frozen=True):
    """``build`` and ``graph`` as in :class:`~tvm_codl.records.plan_record.PlanRecord`; ``when`` is Unix time."""

    device: str
    build: str
    graph: str
    when: float
    rounds: tuple[Round, ...]


def save_rounds(store: Path, device: str, build: str, graph: str, rounds: Sequence[Round]) -> None:
    """Appends those of one search to the file beside the record store ``store``."""
    append_line(file_beside(store, "rounds"), StoredRounds(device, build, graph, time.time(), tuple(rounds)))


def load_rounds(store: Path, device: str, build: str, graph: str) -> tuple[Round, ...]:
    """Those of the newest search for a network's plan that measured something, else of the newest."""
    kept = [
        each.rounds
        for each in read_lines(file_beside(store, "rounds"), StoredRounds)
        if (each.device, each.build, each.graph) == (device, build, graph)
    ]
    return next((rounds for rounds in kept if rounds and rounds[-1].measured), kept[0] if kept else ())
