"""Session: a phone and all that work on it needs, with the verbs of tvm_codl.

::

    with codl.connect(log=print) as session:
        network = codl.prepare(codl.load_model("zoo:resnet18"))
        plan = session.plan(network, budget_s=60)
        library = session.build(network, plan, Path("resnet18.so"))
        outputs = session.open(library).run(network.model.sample_inputs())
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tvm_codl.device.connect import CONNECT_S
from tvm_codl.device.connect import connect as connect_phone
from tvm_codl.device.power import Power
from tvm_codl.device.reference.local import LocalPhone
from tvm_codl.device.spec import Spec, Tracker
from tvm_codl.errors import UsageError
from tvm_codl.kernels.toolchain import toolchain
from tvm_codl.measure import bench, learning, plan_libraries, planning, ranking, settings_search, tuning
from tvm_codl.measure.budget import USUAL_S, Budget
from tvm_codl.measure.context import Context, Log
from tvm_codl.measure.guided import Guided
from tvm_codl.measure.phone_pool import connect_pool
from tvm_codl.paths import default_records
from tvm_codl.plan.adaptive import StatePlan
from tvm_codl.plan.plan import Plan
from tvm_codl.records.record import Record
from tvm_codl.records.settings import Settings
from tvm_codl.records.store import RecordStore
from tvm_codl.relay.prepared import Prepared
from tvm_codl.report.ranking import Ranking
from tvm_codl.runtime.comodule import CoModule


class Session(Context):
    """An open session on a phone; :func:`connect` makes it.

    Every verb may raise :class:`~tvm_codl.errors.DeviceError` where the phone goes away for good.  Whatever was measured
    until then is in the record store, and the same call goes on from there.
    """

    def measure(self, prepared: Prepared, budget: Budget | str = "5min", retry_failed: bool = False) -> Guided:
        """Measures a network's operators and pieces, those first that could change the plan.

        ``budget`` is a :class:`Budget` or its text: ``"200"`` measurements, ``"90s"``, ``"5min"``.  What is on record
        costs nothing.  With ``retry_failed`` tries again what failed on this phone before.  The result's plan is the
        predicted best and has not run.  Raises :class:`UsageError` for a budget that is none or too small.
        """
        allowed = Budget.parse(budget) if isinstance(budget, str) else budget
        return learning.learn(prepared, self, allowed, retry_failed)[0]

    def compile_ahead(self) -> None:
        """Compiles what :meth:`measure` and :meth:`plan` run first on the phone, for whoever has time before."""
        learning.compile_ahead(self)

    def measure_grid(self, prepared: Prepared, retry_failed: bool = False) -> list[Record]:
        """Measures every operator whole and split along each axis in tenths."""
        return learning.measure_grid(prepared, self, retry_failed)

    def plan(
        self,
        prepared: Prepared,
        budget_s: float = USUAL_S,
        check: bool = True,
        limit_s: float = math.inf,
        again: bool = False,
    ) -> Plan:
        """The fastest plan: measures for ``budget_s`` seconds, plans, and with ``check`` runs the best plans on the phone
        against each processor alone, so that the result is never slower than the better one.

        Where it did so before on this phone, returns the fastest plan of then; with ``again`` plans anew.  After ``limit_s``
        seconds, in the main thread alone, the best plan that is known then.  Raises
        :class:`~tvm_codl.errors.UserError` where there is none yet.
        """
        return planning.make_plan(prepared, self, budget_s, check, limit_s, again)

    def plan_adaptive(
        self, prepared: Prepared, budget_s: float = USUAL_S, plan: Plan | None = None
    ) -> tuple[StatePlan, ...]:
        """``plan`` (by default :meth:`plan`'s), and plans for a phone whose CPU is busy or whose GPU is throttled."""
        return planning.make_adaptive(prepared, self, budget_s, plan)

    def plan_energy(self, prepared: Prepared, budget_s: float = USUAL_S, power: Power | None = None) -> Plan:
        """The plan that draws least by a power table, by default the profile's.  It is predicted, not run."""
        return planning.plan_energy(prepared, self, budget_s, power)

    def apply_settings(self, prepared: Prepared, plan: Plan, settings: Settings | None = None) -> Plan:
        """``plan`` with ``settings``, by default with those that run fastest on the phone."""
        return settings_search.apply_settings(prepared, plan, settings, self)

    def tune(self, prepared: Prepared, output: Path, **options: Any) -> tuning.Report:
        """Tunes kernels with AutoTVM into ``output``; see :func:`~tvm_codl.measure.tuning.tune_kernels`."""
        return tuning.tune_kernels(prepared, self, output, **options)

    def with_tuning(self, tuning_records: Path) -> Session:
        """This session with other tuned kernels."""
        return dataclasses.replace(self, tools=toolchain(self.profile, tuning_records))

    def build(self, prepared: Prepared, plan: Plan, out: Path, adaptive: Sequence[StatePlan] = ()) -> Path:
        """Builds one ``.so`` for this phone at ``out``; with ``adaptive`` (:meth:`plan_adaptive`'s) it carries all these
        plans and chooses among them as it runs."""
        if adaptive:
            return plan_libraries.build_adaptive_library(prepared, adaptive, self.profile, self.tools, out, self.log)
        return plan_libraries.build_library(prepared, plan, self.profile, self.tools, out, self.log)

    def library(self, prepared: Prepared, plan: Plan) -> Path:
        """The library of a plan in the cache, built if it is not there."""
        return plan_libraries.libraries_for(prepared, {"": plan}, self.tools, self.log)[""]

    def open_plan(self, prepared: Prepared, plan: Plan) -> CoModule:
        """A plan's library on the phone, ready to run; what one processor's compiler rejects runs on the other."""
        return plan_libraries.open_plans(prepared, {"": plan}, self)[""]

    def open(self, library: Path, sharing: str = "auto") -> CoModule:
        """Sends a library to the phone and makes it ready to run there."""
        return plan_libraries.open_library(library, self.phone, sharing)

    def bench(self, prepared: Prepared, **options: Any) -> bench.BenchReport:
        """Each processor alone and co-execution, interleaved; see :func:`~tvm_codl.measure.bench.bench`."""
        return bench.bench(prepared, self, **options)

    def rank(self, networks: Mapping[str, Prepared], **options: Any) -> Ranking:
        """Orders networks by latency; see :func:`~tvm_codl.measure.ranking.rank_models`."""
        return ranking.rank_models(networks, self, **options)


@contextlib.contextmanager
def connect(
    spec: Spec | LocalPhone | None = None,
    *,
    records: Path | None = None,
    tuning_records: Path | None = None,
    log: Log = lambda _: None,
    timeout_s: float = CONNECT_S,
    session_s: float = 0.0,
    phones: int = 1,
    soc: Path | None = None,
) -> Iterator[Session]:
    """A session on the phone that ``spec`` names or is, by default one on this machine that lives as long as the session.

    ``records`` is the record store (by default the one in the cache folder), ``tuning_records`` AutoTVM's lines for the
    kernels, beside the shipped ones.  With ``phones`` > 1, measures on up to that many phones of one key at a tracker at
    once.  ``soc`` names a file in CoDL's YAML with facts of the phone's GPU.  The phone ends the session after ``session_s`` seconds (0: never).  Raises :class:`DeviceError` where there is
    no such phone, where it does not answer within ``timeout_s`` seconds, and where it goes away while the caller's block
    runs.
    """
    with contextlib.ExitStack() as stack:
        if phones == 1:
            phone: Any = stack.enter_context(connect_phone(spec, timeout_s=timeout_s, session_s=session_s, soc=soc))
        elif isinstance(spec, Tracker):
            phone = stack.enter_context(connect_pool(spec, phones, timeout_s, log, soc))
        else:
            raise UsageError("several phones are found through a tracker", "--rpc-tracker is missing")
        store = stack.enter_context(RecordStore(records or default_records()))
        yield Session(phone, store, toolchain(phone.profile, tuning_records), log)
