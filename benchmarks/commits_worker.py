"""One side of ``commits.py``: plans, builds and times networks by the checkout whose Python runs it.

Reads lines of JSON, and answers each with one: ``["prepare", MODEL, SECONDS]`` with what the libraries cost by prediction,
``["time", VARIANT, RUNS]`` with ms.  Knows the names of this commit and of those before ``Session`` was the front (cd992e9).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import tvm_codl as codl

try:
    from tvm_codl.plan.plan import uniform_plan
except ImportError:
    from tvm_codl.plan.explain import uniform_plan


class Side:
    """``session`` is what ``connect`` gave: a :class:`Session` now, a phone in earlier commits."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session, self.folder = session, folder
        self.modules: dict[str, Any] = {}

    def prepare(self, name: str, budget_s: float) -> dict[str, float]:
        """The network on each processor alone and by the plan that is predicted to be best; nothing is validated."""
        self.modules.clear()
        model = codl.load_model(name)
        prepared = codl.prepare(model)
        plan = self._plan(prepared, budget_s)
        plans = {
            **{f"{on} only": uniform_plan(prepared.graph, on, prepared.name) for on in ("cpu", "gpu")},
            "plan": plan,
        }
        for variant, each in plans.items():
            self.modules[variant] = self._open(
                prepared, each, self.folder / f"{prepared.name}.{variant[:4].strip()}.so"
            )
            self.modules[variant].run(model.sample_inputs())
        return {"predicted_ms": plan.predicted_ms}

    def _plan(self, prepared: Any, budget_s: float) -> Any:
        if hasattr(self.session, "plan"):
            return self.session.plan(prepared, budget_s=budget_s, check=False)
        return codl.make_plan(prepared, self.session, budget_s=budget_s, check=False)

    def _open(self, prepared: Any, plan: Any, path: Path) -> Any:
        if hasattr(self.session, "build"):
            return self.session.open(self.session.build(prepared, plan, path))
        codl.build_library(prepared, plan, self.session.profile, path)
        return codl.open_library(path, self.session)

    def time(self, variant: str, runs: int) -> list[float]:
        """The first run after another program's finds caches in that one's state: it is not counted."""
        return list(self.modules[variant].benchmark(1, 1 + runs)[1:])


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed
    with codl.connect() as session, tempfile.TemporaryDirectory(prefix="tvm_codl-commits-") as folder:
        side = Side(session, Path(folder))
        for line in sys.stdin:
            verb, *arguments = json.loads(line)
            print(json.dumps(getattr(side, verb)(*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
