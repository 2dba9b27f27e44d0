"""TVM asks what it was built with for every dimension that a kernel has; here it asks once.

The answer is a map of 200 entries, which Python reads one by one: half of the time that a library took to build.
"""

from __future__ import annotations

import functools

from tvm.relay.backend import te_compiler

te_compiler.libinfo = functools.cache(te_compiler.libinfo)
