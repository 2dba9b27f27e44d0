from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tvm_codl.errors import UserError
from tvm_codl.kernels.reuse import (
    CONV2D,
    DEPTHWISE,
    FROM_PACKAGE,
    FROM_USER,
    MEASURED,
    TRANSFERRED,
    Place,
    Serves,
    Tuning,
    Tunings,
    nearest,
    place_of,
    read,
    shipped,
)


def line(rows: int, blocks: int, seconds: float, error: int = 0, keys: str = "codl_cpu,codl,v16,cpu") -> str:
    data, weight = ["TENSOR", [1, rows, 56, 64], "float32"], ["TENSOR", [blocks, 3, 3, 64, 16], "float32"]
    return json.dumps(
        {
            "input": [f"llvm -keys={keys}", CONV2D, [data, weight, [1, 1], [1, 1, 1, 1], [1, 1], "float32"], {}],
            "config": {"index": 0, "code_hash": None, "entity": [["columns", "ot", 7], ["blocks", "ot", 2]]},
            "result": [[seconds], error, 1.0, 1.0],
            "version": 0.2,
        }
    )


def test_the_records_of_ours_that_succeeded(tmp_path: Path) -> None:
    path = tmp_path / "cpu.log"
    path.write_text("# a comment\n\n" + "\n".join((line(56, 4, 2.0), line(56, 4, 1.0, 4), line(28, 2, 1.0, 0, "cpu"))))
    (entry,) = read([path]).entries
    assert (entry.serves.processor, entry.place.extents, entry.place.exact) == ("cpu", (56, 64), (56, 1, 1))
    assert entry.knobs == {"columns": 7, "blocks": 2} and entry.seconds == 2.0
    for broken in ("{", '{"input": []}', "[]"):
        path.write_text(broken)
        with pytest.raises(UserError, match=r"cpu\.log:1 is no tuning record"):
            read([path])
    with pytest.raises(UserError, match="cannot read"):
        read([tmp_path / "missing.log"])


def test_a_kernel_of_integers_is_no_relative_of_one_of_floats() -> None:
    def place(dtype: str) -> Place:
        data, weight = ["TENSOR", [1, 56, 56, 64], dtype], ["TENSOR", [3, 3, 64, 1], dtype]
        return place_of(DEPTHWISE, [data, weight, [1, 1], [1, 1, 1, 1], [1, 1], "float32"])

    assert place("int8").family != place("float32").family == place("float16").family
    assert place("int8") == place("uint8")


def test_the_nearest_relative_is_nearest_in_ratio_then_fastest(tmp_path: Path) -> None:
    path = tmp_path / "cpu.log"
    path.write_text("\n".join((line(56, 4, 2.0), line(14, 4, 1.0), line(14, 8, 1.5), line(14, 4, 0.5))))
    ((_, relatives),) = read([path]).by_family(Serves("cpu", 16)).items()
    assert len(relatives) == 3 and read([path]).by_family(Serves("gpu", 16, "played")) == {}
    extents = np.array([[40, 64], [20, 48], [14, 100], [14, 64], [14, 64]])
    exact = np.array([[40, 1, 1], [20, 1, 1], [14, 1, 1], [14, 1, 1], [14, 0, 1]])
    chosen, source = nearest(relatives, extents, exact)
    found = [(relatives[i].place.extents, relatives[i].seconds) for i in chosen]
    assert found == [((56, 64), 2.0), ((14, 64), 0.5), ((14, 128), 1.5), ((14, 64), 0.5), ((14, 64), 0.5)]
    assert source.tolist() == [TRANSFERRED] * 3 + [MEASURED, TRANSFERRED]


def test_records_are_for_vectors_as_wide_and_a_users_come_before_the_packages(tmp_path: Path) -> None:
    path = tmp_path / "cpu.log"
    path.write_text("\n".join((line(56, 4, 3.0), line(56, 4, 2.0), line(56, 4, 1.0, keys="codl_cpu,codl,v4,cpu"))))
    entries = read([path], FROM_PACKAGE).entries
    assert [e.serves.lanes for e in entries] == [16, 16, 4]
    (own,) = read([path], FROM_USER).by_family(Serves("cpu", 16)).values()
    assert [e.seconds for e in own] == [2.0]
    package = msgspec.structs.replace(own[0], seconds=1e-9, rank=FROM_PACKAGE)
    for order in ((package, own[0]), (own[0], package)):
        assert Tunings(order).by_family(Serves("cpu", 16)) == {own[0].place.family: own}
        assert Tunings(order).by_family(Serves("cpu", 8)) == {}


def test_the_shipped_records_are_read() -> None:
    entries = shipped().entries
    assert {e.serves.processor for e in entries} == {"cpu", "gpu"} and all(isinstance(e, Tuning) for e in entries)
