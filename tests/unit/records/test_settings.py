from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_codl.errors import UserError
from tvm_codl.plan.files import parse_plan, plan_json
from tvm_codl.plan.plan import Plan
from tvm_codl.records.settings import DEFAULT, Settings


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    cores = tuple(sorted(draw(st.sets(st.integers(0, 1023), max_size=6))))
    threads = draw(st.integers(0, len(cores) or 64))
    floats, memories = st.sampled_from(["float32", "float16"]), st.sampled_from(["buffer", "image"])
    kinds = st.tuples(floats, memories).filter(lambda kind: kind != ("float16", "image"))
    return Settings(draw(st.integers(0, 1 << 20)), threads, cores, *draw(kinds))


@given(settings())
def test_a_plan_keeps_its_settings(chosen: Settings) -> None:
    plan = Plan("net", "phone", (), settings=chosen)
    assert parse_plan(plan_json(plan)) == plan


def test_defaults_are_not_written_and_old_plans_are_read() -> None:
    plan = Plan("net", "phone", ())
    assert "settings" not in plan_json(plan)
    assert parse_plan('{"model": "net", "device": "phone", "operators": []}').settings == DEFAULT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"flush_every": -1}', "flush_every"),
        ('{"flush_every": 1.5}', "flush_every"),
        ('{"cpu_threads": 2000}', "cpu_threads"),
        ('{"cpu_cores": [1, 1]}', "name each core once"),
        ('{"cpu_cores": [3, 1]}', "must rise"),
        ('{"cpu_cores": [-1]}', "cpu_cores"),
        ('{"cpu_threads": 3, "cpu_cores": [1, 2]}', "cpu_cores has 2"),
        ('{"gpu_float": "bfloat16"}', "gpu_float"),
        ('{"gpu_memory": "texture"}', "gpu_memory"),
        ('{"gpu_float": "float16", "gpu_memory": "image"}', "reads buffers alone"),
        ('{"flush": 1}', "unknown field 'flush' in settings"),
        ("[]", "object"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(text: str, words: str) -> None:
    with pytest.raises(UserError) as raised:
        parse_plan('{"model": "net", "device": "phone", "operators": [], "settings": ' + text + "}")
    assert words in str(raised.value)


@given(st.lists(st.integers(-5, 1100), max_size=5), st.integers(-2, 1100))
def test_what_can_be_made_can_be_read(cores: list[int], threads: int) -> None:
    """No value passes one way in and fails the other."""
    raw = {"cpu_cores": cores, "cpu_threads": threads}
    try:
        read = msgspec.convert(raw, Settings)
    except msgspec.ValidationError:
        return
    assert read == Settings(cpu_cores=tuple(cores), cpu_threads=threads)
    assert len(set(cores)) == len(cores) and (not cores or threads <= len(cores))


@given(settings())
def test_words_name_what_differs(chosen: Settings) -> None:
    words = chosen.words()
    assert (words == "default") == (chosen == DEFAULT)
    assert ("gpu_float" in words) == (chosen.gpu_float == "float16")
