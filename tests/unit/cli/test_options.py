from __future__ import annotations

import contextlib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tvm_codl.cli.options import PhoneChoice, ShapeType, phone_options
from tvm_codl.device.spec import Local, Proxy, Tracker, parse_spec
from tvm_codl.errors import UsageError


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("x:[1,3,320,320]", ("x", (1, 3, 320, 320))),
        ("x=1,3,320,320", ("x", (1, 3, 320, 320))),
        ("x: [1, 3]", ("x", (1, 3))),
        ("input:0:[7]", ("input:0", (7,))),
    ],
)
def test_shapes(text: str, shape: tuple[str, tuple[int, ...]]) -> None:
    assert ShapeType().convert(text, None, None) == shape


@pytest.mark.parametrize("text", ["x", "x:", "x:[]", ":[1]", "x=1,,2", "x=-1,2", "x=1.5"])
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(click.BadParameter):
        ShapeType().convert(text, None, None)


def test_options_repeat() -> None:
    @click.command()
    @click.option("--shape", type=ShapeType(), multiple=True)
    def command(shape: tuple[object, ...]) -> None:
        click.echo(repr(dict(shape)))  # type: ignore[call-overload]

    result = CliRunner().invoke(command, ["--shape", "a:[1]", "--shape", "b=2,3"])
    assert result.output.strip() == "{'a': (1,), 'b': (2, 3)}"


def test_a_soc_file_goes_to_the_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr("tvm_codl.api.connect", lambda spec, **options: contextlib.nullcontext(given.update(options)))

    @click.command()
    @phone_options
    def command(phone: PhoneChoice) -> None:
        with phone.connect():
            pass

    result = CliRunner().invoke(command, ["--soc", str(tmp_path / "soc.yaml")])
    assert result.exit_code == 0 and given["soc"] == tmp_path / "soc.yaml"


def test_which_phone() -> None:
    assert parse_spec("", "", "") == Local()
    assert parse_spec("h:1", "", "k") == Tracker("h", 1, "k")
    assert parse_spec("", "h:1", "k") == Proxy("h", 1, "k")
    for arguments in (("h:1", "", ""), ("h:1", "h:2", "k"), ("h", "", "k")):
        with pytest.raises(UsageError):
            parse_spec(*arguments)
