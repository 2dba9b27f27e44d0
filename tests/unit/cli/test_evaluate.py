from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.cost.test_training import store as store
from tvm_codl.cli.evaluate import command as evaluate
from tvm_codl.cli.train import command as train


def test_train_then_evaluate(store: Path, tmp_path: Path) -> None:
    run, model, picture, html = CliRunner(), tmp_path / "model.json", tmp_path / "errors.svg", tmp_path / "errors.html"
    done = run.invoke(
        train,
        ["--records", str(store), "-o", str(model), "--device", "a", "--no-check", "--json"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0 and json.loads(done.stdout)["device"] == "a"
    words = ["--records", str(store), "--json", "--picture", str(picture), "--html", str(html)]
    done = run.invoke(evaluate, words, catch_exceptions=False)
    value = json.loads(done.stdout)
    assert {r["learner"] for r in value["results"]} == {"learned", "CoDL linear", "roofline", "FLOPs"}
    assert picture.read_text().startswith("<svg")
    text = html.read_text()
    assert "shapes held out whole" in text and text.count(">CoDL linear</th>") >= 2 and "data:image/svg+xml" in text
    done = run.invoke(evaluate, ["--records", str(store), "--device", "a", "--model", str(model)])
    assert done.exit_code == 1 and "every one of these records" in str(done.exception)


@pytest.mark.parametrize("command", [train, evaluate])
def test_a_missing_store_is_named(command: object, tmp_path: Path) -> None:
    options = ["--records", str(tmp_path / "none.sqlite")] + (["-o", "model.json"] if command is train else [])
    done = CliRunner().invoke(command, options)  # type: ignore[arg-type]
    assert done.exit_code == 1 and "does not exist" in str(done.exception)
