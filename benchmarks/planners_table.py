"""The comparison of planners: one network's figures, means over networks, and the table of the results page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import geometric_mean

import msgspec

from tvm_codl.errors import CheckFailed
from tvm_codl.report.statistics import Statistics
from tvm_codl.report.tables_page import PageTable, TablesPage

SINGLES = ("cpu", "gpu")
OURS, CODL, GREEDY, RATIO = "ours", "codl", "greedy_chains", "one_ratio"
#: A prediction this close is right; a time this close to the better processor's is no loss; a planner this close is not behind.
RIGHT, NO_LOSS, EVEN = 0.10, 0.98, 0.01
TITLES = {
    "cpu": "CPU only",
    "gpu": "GPU only",
    "layer_wise": "layer-wise",
    "one_ratio": "one ratio",
    "codl": "CoDL",
    "greedy_chains": "greedy chains",
    "ours": "ours",
}


class Variant(msgspec.Struct, frozen=True, omit_defaults=True):
    """One planner's plan of a network.

    ``ms`` from the interleaved run, ``predicted_ms`` from before it; ``splits`` counts the operators that both processors
    share; ``max_rel_err`` is against the reference; ``memory_bytes`` the most that a run holds, 0 where it is not known.
    ``same_as`` names the variant whose library, and so whose times, these are.
    """

    ms: Statistics
    predicted_ms: float
    splits: int
    max_rel_err: float
    memory_bytes: int = 0
    same_as: str = ""


class Planners(msgspec.Struct, frozen=True):
    """One network: ``variants`` by planner, ``cpu`` and ``gpu`` and ``ours`` among them; ``ideal_ms`` is the sum over the
    operators of 1/(1/cpu + 1/gpu) as measured in the same run; ``when`` is Unix time."""

    model: str
    device: str
    variants: dict[str, Variant]
    ideal_ms: float
    rounds: int
    when: float

    def median(self, name: str) -> float:
        return self.variants[name].ms.median

    @property
    def best_single_ms(self) -> float:
        """Of those that run the whole network."""
        return min(self.median(name) for name in SINGLES if name in self.variants)

    @property
    def speedup(self) -> float:
        return self.best_single_ms / self.median(OURS)

    @property
    def efficiency(self) -> float:
        return self.ideal_ms / self.median(OURS)

    def against(self, name: str) -> float:
        """How many times as long as ours another planner's plan takes."""
        return self.median(name) / self.median(OURS)

    @property
    def prediction(self) -> float:
        """Our plan's predicted time over its measured one."""
        return self.variants[OURS].predicted_ms / self.median(OURS)

    @property
    def memory(self) -> float | None:
        """Our plan's memory over the better processor's; None where it is not known."""
        better = min((name for name in SINGLES if name in self.variants), key=self.median)
        ours, alone = (self.variants[name].memory_bytes for name in (OURS, better))
        return ours / alone if ours and alone else None

    @property
    def max_rel_err(self) -> float:
        return max(variant.max_rel_err for variant in self.variants.values())


class Summary(msgspec.Struct, frozen=True):
    """Over ``networks``; means are geometric but for ``efficiency``'s.

    ``losses`` counts networks below ``NO_LOSS`` of the better processor, ``right`` the predictions within ``RIGHT``,
    ``behind`` the networks on which ours is more than ``EVEN`` behind CoDL's plan or the one ratio, ``behind_greedy`` those
    on which it is so behind the greedy chains that know our costs.
    """

    networks: int
    speedup: float
    least_speedup: float
    efficiency: float
    against_codl: float
    against_greedy: float
    against_ratio: float
    against_layer_wise: float
    losses: int
    behind: int
    behind_greedy: int
    right: int
    largest_error: float
    most_memory: float | None


def summary(results: Sequence[Planners]) -> Summary:
    """Raises :class:`CheckFailed` for no networks."""
    if not results:
        raise CheckFailed("there is no network to sum up", next="python benchmarks/planners.py MODEL --out FOLDER")
    memory = [result.memory for result in results if result.memory is not None]
    return Summary(
        networks=len(results),
        speedup=geometric_mean(r.speedup for r in results),
        least_speedup=min(r.speedup for r in results),
        efficiency=sum(r.efficiency for r in results) / len(results),
        against_codl=geometric_mean(r.against(CODL) for r in results),
        against_greedy=geometric_mean(r.against(GREEDY) for r in results),
        against_ratio=geometric_mean(r.against(RATIO) for r in results),
        against_layer_wise=geometric_mean(r.against("layer_wise") for r in results),
        losses=sum(r.speedup < NO_LOSS for r in results),
        behind=sum(min(r.against(CODL), r.against(RATIO)) < 1 - EVEN for r in results),
        behind_greedy=sum(r.against(GREEDY) < 1 - EVEN for r in results),
        right=sum(abs(r.prediction - 1) <= RIGHT for r in results),
        largest_error=max(r.max_rel_err for r in results),
        most_memory=max(memory, default=None),
    )


def markdown(results: Sequence[Planners]) -> str:
    """A Markdown table, a row a network, and the means."""
    lines = ["| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|"]
    lines += ["| " + " | ".join(_cells(result)) + " |" for result in results]
    return "\n".join([*lines, "", _words(summary(results))])


def page(results: Sequence[Planners]) -> TablesPage:
    """The same table and means."""
    found = summary(results)
    verdict = f"Our plans are {found.speedup:.2f} times as fast as the better processor alone (geometric mean)."
    devices = ", ".join(dict.fromkeys(result.device for result in results))
    table = PageTable("Times in ms", HEADS[:1], HEADS[1:], tuple(map(_cells, results)), note=_words(found))
    return TablesPage("Planners compared", verdict, (("phone", devices),), (table,))


def _cells(result: Planners) -> tuple[str, ...]:
    times = [_ms(result.median(name)) if name in result.variants else "" for name in TITLES]
    ours = result.variants[OURS].ms
    times[-1] += f" ({_ms(ours.p10)} to {_ms(ours.p90)})"
    return (result.model, *times, *(show(result) for _, show in _COLUMNS))


def _words(found: Summary) -> str:
    memory = f", at most {found.most_memory:.2f} times the better processor's memory" if found.most_memory else ""
    return (
        f"{found.networks} networks: speedup {found.speedup:.2f} (geometric mean; least {found.least_speedup:.2f}), "
        f"efficiency {found.efficiency:.2f} (mean); {found.losses} below {NO_LOSS} of the better processor. "
        f"CoDL's plans take {found.against_codl:.3f}, greedy chains with our costs {found.against_greedy:.3f}, one ratio "
        f"{found.against_ratio:.3f}, layer-wise {found.against_layer_wise:.3f} times as long as ours (geometric means); ours "
        f"is more than {EVEN:.0%} behind CoDL or one ratio on {found.behind}, behind greedy chains on {found.behind_greedy}. "
        f"Predicted within {RIGHT:.0%}: {found.right} of {found.networks}. "
        f"Largest error of any variant {found.largest_error:.1e}{memory}."
    )


_COLUMNS: tuple[tuple[str, Callable[[Planners], str]], ...] = (
    ("predicted", lambda r: _ms(r.variants[OURS].predicted_ms)),
    ("speedup", lambda r: f"{r.speedup:.2f}"),
    ("efficiency", lambda r: f"{r.efficiency:.2f}"),
    ("CoDL / ours", lambda r: f"{r.against(CODL):.2f}"),
    ("greedy / ours", lambda r: f"{r.against(GREEDY):.2f}"),
    ("one ratio / ours", lambda r: f"{r.against(RATIO):.2f}"),
    ("error", lambda r: f"{r.max_rel_err:.1e}"),
    ("memory", lambda r: f"{r.memory:.2f}" if r.memory else ""),
)
HEADS = ("", *TITLES.values(), *(head for head, _ in _COLUMNS))


def _ms(ms: float) -> str:
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"
