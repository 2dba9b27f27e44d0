"""Records of all kinds, for property tests."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from tests.unit.plan.networks import convolutions
from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.plan_record import PlanRecord
from tvm_codl.records.record import ErrorNo, Piece, Record
from tvm_codl.records.workload import workloads

_graph = convolutions(2)
KEYS = [
    w.key for o in _graph.operators for w in workloads(o, _graph, [("", 0, 0), ("height", 0, 4), ("channels", 0, 8)])
]

#: What SQLite keeps: any text that UTF-8 can write.  Often one that a spreadsheet would take for a formula.
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(["=1+1", "'", "''=x", "@a", "-", "+1", "\tx", "\r\n", 'a "quoted", cell', "a\r\nb\nc", "#", "\0"]),
)
positive = st.floats(0, 1e12, allow_nan=False)
times = st.lists(positive, max_size=4).map(tuple)
numbers = st.sampled_from([int(number) for number in ErrorNo])
pieces = st.builds(Piece, texts, texts, st.integers(0, 9999), st.integers(0, 9999), st.integers(0, 9999))
records = st.builds(
    Record,
    workload=st.sampled_from(KEYS),
    piece=pieces,
    processor=st.sampled_from(["cpu", "gpu"]),
    device=texts,
    build=texts,
    times_ms=times,
    when=positive,
    mode=st.sampled_from(["alone", "shared"]),
    error=texts,
    error_no=numbers,
    profile=texts,
    schedule=texts,
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
_entities = st.lists(
    st.one_of(
        st.tuples(st.text(max_size=5), st.just("sp"), st.lists(st.integers(-1, 512), min_size=1, max_size=4)),
        st.tuples(st.text(max_size=5), st.just("re"), st.lists(st.integers(0, 6), max_size=4)),
        st.tuples(st.text(max_size=5), st.just("an"), st.lists(st.sampled_from(["unroll", "vec", "none"]), max_size=3)),
        st.tuples(st.text(max_size=5), st.just("ot"), st.one_of(st.booleans(), st.integers(0, 512), st.just("auto"))),
    ),
    max_size=4,
)
configs = st.fixed_dictionaries(
    {"index": st.integers(-1, 10**9), "code_hash": st.none() | st.text(max_size=4), "entity": _entities}
)
TARGETS = [
    "llvm -mcpu=core-avx2",
    "opencl -device=mali -model=rk3399",
    "cuda -model=1080ti",
    "llvm -device=arm_cpu -model=pixel2 -mtriple=arm64-linux-android -mattr=+neon",
]
kernels = st.builds(
    KernelRecord,
    target=st.sampled_from(TARGETS),
    task=st.sampled_from(["conv2d_nhwc.codl", "dense_nopack.x86", "conv2d_nchw_spatial_pack.mali"]),
    args=st.lists(_values, max_size=3).map(json.dumps),
    config=configs.map(json.dumps),
    costs=st.lists(positive, min_size=1, max_size=4).map(tuple),
    error_no=numbers,
    all_cost=positive,
    timestamp=positive,
    device=texts,
    profile=texts,
    tvm_version=st.sampled_from(["", "0.19.0", "0.7.dev1"]),
)
_places = st.fixed_dictionaries(
    {"on": st.sampled_from(["cpu", "gpu", "split"])}, optional={"axis": texts, "at": st.integers()}
)
plans = st.builds(
    PlanRecord,
    model=texts,
    device=texts,
    build=texts,
    graph=st.text("0123456789abcdef", min_size=1, max_size=16),
    placements=st.lists(_places, min_size=1, max_size=4).map(json.dumps),
    predicted_ms=positive,
    times_ms=st.lists(positive, min_size=1, max_size=4).map(tuple),
    when=positive,
    settings=st.sampled_from(["{}", '{"flush_every": 4}']),
)
