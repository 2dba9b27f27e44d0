"""Replay: when a plan's parts start and end on two processors, as the co-executor runs them.

The co-executor works off two in-order lists, one a processor, and waits only where data crosses.  The search adds up
operators as if both processors met after each; here they do not, so a processor may run ahead of the other, branches
run side by side, and the two slow each other down for as long as both work (:mod:`tvm_codl.cost.contention`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tvm_codl.cost.sharing import SharingCost

CPU, GPU = 0, 1


class Part(msgspec.Struct, frozen=True):
    """One processor's part of an operator.

    ``ms`` alone; ``bytes`` that it moves; ``extra_ms`` for what it rewrites, copies or reads from afar before;
    ``after``: numbers of the operators whose part on the *other* processor must have ended.
    """

    ms: float
    bytes: float = 0.0
    extra_ms: float = 0.0
    after: tuple[int, ...] = ()


class Step(msgspec.Struct, frozen=True):
    """An operator's parts; a processor without one does nothing."""

    cpu: Part | None = None
    gpu: Part | None = None


class Times(msgspec.Struct, frozen=True):
    """Milliseconds from the run's start.  ``ends[i]`` are operator i's ends on the CPU and the GPU, 0 without a part.

    ``waited_ms``: how long each processor, between its parts, waited for the other.
    """

    total_ms: float
    ends: tuple[tuple[float, float], ...]
    waited_ms: tuple[float, float]


class _List:
    """One processor's list while it is replayed."""

    def __init__(self, steps: Sequence[Step], which: int, sharing: SharingCost) -> None:
        self.parts = [(i, p) for i, step in enumerate(steps) if (p := (step.cpu, step.gpu)[which]) is not None]
        side = (sharing.contention.cpu, sharing.contention.gpu)[which]
        self.traffic = [max(p.bytes - side.cache, 0.0) / p.ms if p.ms > 0 else 0.0 for _, p in self.parts]
        self.at = 0
        self.free = 0.0  # when it ended what is behind it
        self.begin = 0.0  # when it starts, or started, the part that it is at
        self.left = 0.0  # of that part, in ms alone
        self.ready = False
        self.waited = 0.0


def replay(steps: Sequence[Step], sharing: SharingCost) -> Times:
    """Runs the lists of a plan by its predicted times; operators are in the graph's order.

    Raises :class:`ValueError` for parts that wait for each other, which those of a graph in order do not.
    """
    lists = (_List(steps, CPU, sharing), _List(steps, GPU, sharing))
    ends = [[0.0, 0.0] for _ in steps]
    done = [[step.cpu is None, step.gpu is None] for step in steps]
    fed = [0] * (len(steps) + 1)
    for i, step in enumerate(steps):
        fed[i + 1] = fed[i] + (step.gpu is not None)
    enqueued = 0
    signalled = [False] * len(steps)
    cpu, gpu = lists
    gpu.free = sharing.start_ms if gpu.parts else 0.0
    while True:
        for which, own in enumerate(lists):
            if own.ready or own.at >= len(own.parts):
                continue
            index, part = own.parts[own.at]
            if not all(done[i][1 - which] for i in part.after):
                continue
            come = max((ends[i][1 - which] for i in part.after), default=0.0)
            own.begin, own.left = own.free, part.ms + part.extra_ms
            if which == CPU:
                # It enqueues what the GPU does until this operator, and then may wait.
                own.begin += sharing.feed_ms * max(fed[index + 1] - enqueued, 0)
                enqueued = max(enqueued, fed[index + 1])
                if come > own.begin:
                    own.waited += come - own.begin
                    own.begin = come + sharing.wait_cpu_ms
            else:
                own.begin += sharing.launch_ms if own.at else 0.0
                if come > own.free:
                    own.waited += come - own.free
                    own.begin = come + sharing.wait_gpu_ms
                    for i in part.after:
                        # Releasing a GPU that sleeps takes the CPU a while, unless something else woke it.
                        if ends[i][CPU] == come and not signalled[i]:
                            signalled[i] = True
                            if cpu.ready and cpu.begin >= come:
                                cpu.begin += sharing.signal_ms
                            elif not cpu.ready:
                                cpu.free += sharing.signal_ms
            own.ready = True
        running = [own for own in lists if own.ready]
        if not running:
            break
        now = min(own.begin for own in running)
        working = [own for own in running if own.begin <= now]
        later = [own.begin for own in running if own.begin > now]
        slow = {id(own): 1.0 for own in working}
        if len(working) == 2:
            traffic = [own.traffic[own.at] for own in lists]
            factors = sharing.contention.factors(*traffic)
            slow = {id(own): factor for own, factor in zip(lists, factors, strict=True)}
        until = min([now + own.left * slow[id(own)] for own in working] + later)
        for which, own in enumerate(lists):
            if own not in working:
                continue
            own.left -= (until - now) / slow[id(own)]
            own.begin = until
            if own.left > 1e-9:  # a picosecond: what rounding leaves
                continue
            index = own.parts[own.at][0]
            ends[index][which], done[index][which] = until, True
            own.free, own.ready, own.at = until, False, own.at + 1
    unfinished = [own.parts[own.at][0] for own in lists if own.at < len(own.parts)]
    if unfinished:
        raise ValueError(f"the parts of operators {unfinished} wait for each other")
    cpu.free += sharing.feed_ms * (fed[-1] - enqueued)
    return Times(max(cpu.free, gpu.free), tuple((c, g) for c, g in ends), (cpu.waited, gpu.waited))
