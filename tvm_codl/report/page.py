"""Page: what is known of a network and its plan, as one HTML file that needs no network.

Templates are in ``template/``; what they show is escaped by Jinja.  A page works without scripts, which add the panel of an
operator, what-if and the links between list and timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from tvm_codl.report.lanes import lanes
from tvm_codl.report.timeline import Event, busy_intervals

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).parent / "template"
#: Pixels of a row of the list, and of a lane beside it.
ROW, LANE = 26, 12
#: Smaller differences show as none.
SEEN_MS = 0.0005

On = Literal["cpu", "gpu", "split"]


class Choice(msgspec.Struct, frozen=True):
    """Another placement of an operator, and the predicted ms of the network if it alone moves there."""

    placement: str
    total_ms: float


class OperatorRow(msgspec.Struct, frozen=True):
    """One operator.  Times in ms, none where a processor does not run it; ``cpu_share``, 0 to 1, is the CPU's part of its
    units.  ``sources`` are the rows of the operators whose results it takes; ``chain`` is empty outside of a chain.

    ``ideal_ms``: on both processors, each at its own speed, with nothing lost; ``lost_ms`` what it takes beyond that, its
    transfers too.  ``known``: measured, or the deviation of the prediction.  ``errors``: of its result on the phone, against
    the network on this computer, and what it adds to that itself; none where it was not checked.
    """

    number: int
    name: str
    kind: str
    shape: str
    flops: int
    sources: tuple[int, ...]
    on: On
    placement: str
    cpu_share: float
    cpu_ms: float | None
    gpu_ms: float | None
    here_ms: float
    transfer_ms: float
    ideal_ms: float
    lost_ms: float
    chain: tuple[int, ...]
    known: str
    reason: str
    variant: str
    choices: tuple[Choice, ...] = ()
    errors: tuple[float | None, float | None] | None = None

    @property
    def gflops(self) -> float:
        return self.flops / self.here_ms / 1e6 if self.here_ms > 0 else 0.0


class Total(msgspec.Struct, frozen=True):
    """One way to run the network.  ``spread``: p10 and p90 of measured times; none where it is predicted."""

    name: str
    ms: float
    spread: tuple[float, float] | None = None
    predicted_ms: float | None = None


class Bar(msgspec.Struct, frozen=True):
    """A processor's work on its part of an operator, by the operator's row; ms from the run's start."""

    on: Literal["cpu", "gpu"]
    row: int
    start_ms: float
    end_ms: float


class Searched(msgspec.Struct, frozen=True):
    """A round of the search: ``measured`` pieces so far, and by them the predicted ms of the best plan, in which ``moved``
    operators are placed otherwise than in the round before; ``gain_ms``: what more measuring may save."""

    measured: int
    predicted_ms: float
    moved: int
    gain_ms: float


class Ran(msgspec.Struct, frozen=True):
    """A plan that ran on the phone, in ``words``.  ``simulated_ms`` is by the costs of then; ``this``: the page's plan."""

    day: str
    words: str
    simulated_ms: float
    ms: float
    this: bool


class Page(msgspec.Struct, frozen=True):
    """``verdict`` is one line; ``facts`` are names and values.  ``bars`` are a simulated run of ``span_ms``; times the
    ``correction`` of this phone that is ``predicted_ms``.  ``events`` are a run on the phone, empty where there is none, and ``event_rows`` the rows of
    their operators where these are known.
    ``what_if`` is the command that plans again around a change, without the change; ``chosen`` says how the plan was
    chosen, for where another placement gains.  ``rounds`` of the last search, and the last ``runs`` of plans."""

    title: str
    verdict: str
    facts: tuple[tuple[str, str], ...]
    totals: tuple[Total, ...]
    operators: tuple[OperatorRow, ...]
    predicted_ms: float
    correction: float
    bars: tuple[Bar, ...]
    span_ms: float
    waited_ms: tuple[float, float]
    what_if: str
    chosen: str
    events: tuple[Event, ...] = ()
    event_rows: tuple[int | None, ...] = ()
    rounds: tuple[Searched, ...] = ()
    runs: tuple[Ran, ...] = ()

    @property
    def lost(self) -> list[OperatorRow]:
        """Operators by what they lose, the most first."""
        return sorted((o for o in self.operators if o.lost_ms > 0), key=lambda o: -o.lost_ms)

    @property
    def gains(self) -> int:
        """How many operators have another placement with which the network would take less, by these costs."""
        return sum(any(c.total_ms < self.predicted_ms - SEEN_MS for c in o.choices) for o in self.operators)

    @property
    def idle_ms(self) -> dict[str, float]:
        """By processor, ms of the simulated run in which it has no work."""
        return {on: self.span_ms - sum(b.end_ms - b.start_ms for b in self.bars if b.on == on) for on in ("cpu", "gpu")}

    @property
    def run(self) -> list[tuple[Event, int | None]]:
        """The events that take time, with their rows."""
        rows = self.event_rows or (None,) * len(self.events)
        return [pair for pair in zip(self.events, rows, strict=True) if pair[0].kind != "switch"]

    @property
    def run_ms(self) -> tuple[float, float]:
        """The first start and the last end of the run on the phone."""
        starts, ends = [e.start_us for e in self.events], [e.end_us for e in self.events]
        return min(starts, default=0.0) / 1e3, max(ends, default=0.0) / 1e3

    @property
    def run_idle_ms(self) -> dict[str, float]:
        """By processor, ms of the run on the phone in which it computes nothing."""
        start, end = self.run_ms
        busy = {on: sum(b - a for a, b in busy_intervals(self.events, on)) / 1e3 for on in ("cpu", "gpu")}
        return {on: end - start - ms for on, ms in busy.items()}


class Placed(msgspec.Struct, frozen=True):
    """Of an :class:`OperatorRow` what the page's file carries as data."""

    number: int
    name: str
    placement: str
    cpu_share: Annotated[float, msgspec.Meta(ge=0, le=1)]
    here_ms: float
    transfer_ms: float
    variant: str
    choices: tuple[Choice, ...]


class Data(msgspec.Struct, frozen=True):
    """Of a :class:`Page` what its file carries as data, for its script and for comparing two files."""

    title: str
    verdict: str
    facts: tuple[tuple[str, str], ...]
    totals: Annotated[tuple[Total, ...], msgspec.Meta(min_length=1)]
    operators: tuple[Placed, ...]
    predicted_ms: float
    what_if: str


class Edge(msgspec.Struct, frozen=True):
    """A line from one operator's dot to another's, as SVG's path; ``rows`` are both operators."""

    path: str
    rows: tuple[int, int]


def edges(operators: Sequence[OperatorRow], places: Sequence[int]) -> list[Edge]:
    """Each runs down in its source's lane and turns in the row before its end."""
    found = []
    for row, operator in enumerate(operators):
        for source in dict.fromkeys(operator.sources):
            (x, y), (to_x, to_y) = _dot(places[source], source), _dot(places[row], row)
            turn = to_y - ROW
            path = f"M{x} {y}V{turn}C{x} {to_y - ROW / 2:g} {to_x} {turn + ROW / 2:g} {to_x} {to_y}"
            found.append(Edge(path, (source, row)))
    return found


def _dot(lane: int, row: int) -> tuple[float, float]:
    return lane * LANE + LANE / 2, row * ROW + ROW / 2


def environment() -> jinja2.Environment:
    """Of the templates.  What they show is escaped."""
    import jinja2  # not above: every command imports this module, and few write a page

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["ms"] = milliseconds
    made.filters["relative"] = relative
    return made


def render(page: Page) -> str:
    """The whole file."""
    places = lanes([operator.sources for operator in page.operators])
    dots = [_dot(place, row) for row, place in enumerate(places)]
    return (
        environment()
        .get_template("page.html")
        .render(
            page=page,
            dots=dots,
            edges=edges(page.operators, places),
            gutter=(max(places, default=0) + 1) * LANE,
            row_height=ROW,
            data=msgspec.to_builtins(msgspec.convert(page, Data, from_attributes=True)),
        )
    )


def relative(error: float | None) -> str:
    """An error relative to the largest value; none is that of another shape."""
    return "another shape" if error is None else f"{error:.1e}"


def milliseconds(ms: float | None) -> str:
    """As a page shows them: three digits after the point, fewer of long times."""
    if ms is None:
        return "–"
    return f"{ms:.3f}" if abs(ms) < 10 else f"{ms:.2f}" if abs(ms) < 100 else f"{ms:.1f}"
