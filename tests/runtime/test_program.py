"""A program from outside is checked whole before anything runs: whatever is wrong with it is an error, never a crash."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples

pytestmark = pytest.mark.usefixtures("opencl")

VIEW = {"buffer": 0, "offset": 0, "shape": [4], "dtype": "float32"}
OTHER = {"buffer": 1, "offset": 0, "shape": [4], "dtype": "float32"}
PROGRAM: dict[str, Any] = {
    "format": 2,
    "buffers": [{"bytes": 16, "space": "shared"}, {"bytes": 16, "space": "shared"}],
    "weights": [],
    "regions": [{"name": "a", "processor": "cpu"}, {"name": "b", "processor": "gpu"}],
    "events": 2,
    "cpu": [
        {"do": "copy", "from": VIEW, "to": OTHER, "region": 0},
        {"do": "signal", "event": 0},
        {"do": "wait", "event": 1},
    ],
    "gpu": [
        {"do": "wait", "event": 0},
        {"do": "to_gpu", "view": OTHER},
        {"do": "to_cpu", "view": VIEW},
        {"do": "signal", "event": 1},
    ],
    "inputs": [{"name": "x", "view": VIEW}],
    "outputs": [{"name": "y", "view": OTHER}],
}

BLOCKS = [{"bytes": 16, "space": "cpu", "block": 7, "at": 0}, {"bytes": 16, "space": "gpu", "block": 7, "at": 16}]


def parse(text: str) -> None:
    tvm.get_global_func("codl.create_library")(text, "{}", 0)


def refused(program: Any, words: str) -> None:
    with pytest.raises(Exception, match=words):
        parse(program if isinstance(program, str) else json.dumps(program))


def changed(*path: Any, to: Any) -> dict[str, Any]:
    program = copy.deepcopy(PROGRAM)
    at: Any = program
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return program


def test_the_sound_program_is_taken() -> None:
    parse(json.dumps(PROGRAM))


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("", "not JSON"),
        ("[]", "no object"),
        (changed("format", to=1), "rebuild the library"),
        (changed("buffers", 0, "bytes", to=-1), "out of range"),
        (changed("buffers", 0, "bytes", to=1e300), "out of range"),
        (changed("buffers", 0, "space", to="moon"), "unknown space"),
        (changed("inputs", 0, "view", "buffer", to=7), "out of range"),
        (changed("inputs", 0, "view", "offset", to=8), "past the end"),
        (changed("inputs", 0, "view", "shape", to=[2**20, 2**20, 2**20]), "larger than any buffer"),
        (changed("inputs", 0, "view", "dtype", to="complex"), "unknown type"),
        (changed("cpu", 2, "event", to=5), "out of range"),
        (changed("cpu", 0, "region", to=1), "the other processor's list"),
        (changed("cpu", 0, "to", "shape", to=[2]), "different sizes"),
        (changed("cpu", 0, "do", to="dance"), "unknown step"),
        (changed("cpu", 1, to={"do": "to_gpu", "view": VIEW}), "unknown step"),
        (changed("buffers", 0, "space", to="gpu"), "the other processor|cannot reach"),
        (changed("gpu", 3, "event", to=0), "nobody signals"),
        (changed("cpu", to=[PROGRAM["cpu"][2], PROGRAM["cpu"][1]]), "wait for each other"),
        (changed("gpu", to=[*PROGRAM["gpu"], {"do": "signal", "event": 1}]), "signalled twice"),
        (changed("gpu", to=[*PROGRAM["gpu"], {"do": "wait", "event": 0}]), "awaited twice"),
        (changed("buffers", 0, "block", to=3), "no field at"),
        (changed("buffers", 0, "block", to=-3), "out of range"),
        (changed("buffers", to=[{**b, "block": 0, "at": 0} for b in PROGRAM["buffers"]]), "shares its memory"),
        (changed("buffers", to=[*PROGRAM["buffers"], *BLOCKS]), "two spaces"),
        (changed("buffers", 0, "common", to=-1), "out of range"),
        (changed("buffers", 0, "common", to=0), "shares its memory"),
    ],
)
def test_what_is_wrong_is_named(program: Any, words: str) -> None:
    refused(program, words)


def test_weights_must_have_their_buffers_size() -> None:
    program = {
        **PROGRAM,
        "buffers": [*PROGRAM["buffers"], {"bytes": 16, "space": "cpu"}],
        "weights": [{"buffer": 2, "name": "w"}],
        "gpu": [],
        "cpu": [],
    }
    make = tvm.get_global_func("codl.create_library")
    make(json.dumps(program), "{}", 1, "w", tvm.nd.array(np.ones(4, "float32")))["create"](0, "svm")
    with pytest.raises(Exception, match="another size than its buffer"):
        make(json.dumps(program), "{}", 1, "w", tvm.nd.array(np.ones(3, "float32")))["create"](0, "svm")
    with pytest.raises(Exception, match="lacks the weight w"):
        make(json.dumps(program), "{}", 0)["create"](0, "svm")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for k, v in items for p in places(v, (*path, k)))]


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(), st.text(max_size=8), st.lists(st.integers()),
    st.dictionaries(st.text(max_size=4), st.integers()),
)  # fmt: skip


@settings(max_examples=examples(300))
@given(st.sampled_from(places(PROGRAM)[1:]), JUNK)
def test_any_value_replaced_by_any_other_is_taken_or_refused(path: tuple[Any, ...], junk: Any) -> None:
    try:
        parse(json.dumps(changed(*path, to=junk)))
    except tvm.error.TVMError as error:
        assert "damaged" in str(error)
    except RuntimeError as error:
        assert "damaged" in str(error)


@settings(max_examples=examples(150))
@given(st.integers(0, len(json.dumps(PROGRAM))), st.text(max_size=3))
@example(137, "\\\x80")
def test_a_cut_or_spoilt_text_is_taken_or_refused(at: int, junk: str) -> None:
    text = json.dumps(PROGRAM)
    try:
        parse(text[:at] + junk + text[at + len(junk) + 1 :])
    except RuntimeError as error:
        assert "damaged" in str(error)
