"""Reference answers for a Relay module, by TVM's own executor."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import autotvm, relay
from tvm.contrib.graph_executor import GraphModule

from tvm_codl.relay.pipeline import CONFIG


@dataclass(frozen=True)
class RelayReference:
    """Computes a module of static shapes, its weights bound as constants, as it is: without a pass or a kernel of ours, at
    ``opt_level`` 0.  It is built for this machine's CPU on first use."""

    module: tvm.IRModule

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs on ``inputs``; nested tuples are flattened."""
        for name, value in inputs.items():
            self._executor.set_input(name, tvm.nd.array(np.ascontiguousarray(value)))
        self._executor.run()
        return [self._executor.get_output(index).numpy() for index in range(self._executor.get_num_outputs())]

    @functools.cached_property
    def _executor(self) -> GraphModule:
        scope = autotvm.GLOBAL_SCOPE
        silent, scope.silent = scope.silent, True  # nothing is tuned: it only has to be right
        try:
            # With a context of records, even of none, TVM does not download some.
            with autotvm.apply_history_best([]), tvm.transform.PassContext(opt_level=0, config=CONFIG):
                library = relay.build(self.module, target="llvm")
        finally:
            scope.silent = silent
        return GraphModule(library["default"](tvm.cpu()))

    def __getstate__(self) -> dict[str, Any]:
        """Without the executor, which is no data."""
        return {"module": self.module}
