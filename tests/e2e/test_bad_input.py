"""What a user may get wrong, through the command line: a clear error with the next step, quickly, and nothing left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
from onnx import helper

import tvm_codl
import tvm_codl as codl
from tests.frontend.onnx_models import save
from tests.phone.servers import Server, gone, phone_server, tvm_process, wait_until
from tvm_codl.device.tracker_client import tracker_summary
from tvm_codl.plan.files import plan_json
from tvm_codl.plan.plan import uniform_plan

LIMIT_S = 30.0  # a hang, not a slow machine


@dataclass
class Done:
    code: int
    out: str
    err: str

    def is_error(self, code: int, *words: str, next: bool = True) -> None:
        """Exit code, no data, and an error in our form with these words in it."""
        assert (self.code, self.out) == (code, ""), self.err
        assert "Traceback" not in self.err
        assert self.err.count("error: ") == 1, self.err
        for word in words:
            assert word in self.err, self.err
        if next:
            assert "\n  next: " in self.err


class CommandLine:
    """``tvm-codl`` in a process of its own, with a temporary folder of its own, which must be empty afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.temporary = folder, folder / "tmp"
        self.temporary.mkdir()
        self.environment = {
            **os.environ,
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(Path(tvm_codl.__file__).parents[1]),
        }

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tvm_codl", *map(str, arguments)],
            cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finish(self, process: subprocess.Popen[str], seconds: float = LIMIT_S) -> Done:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"still running after {seconds:g} s: {process.args}")
        wait_until(lambda: not self.left(), f"{self.left()} go", 5)
        return Done(process.returncode, out, err)

    def __call__(self, *arguments: object) -> Done:
        return self.finish(self.start(*arguments))

    def left(self) -> list[str]:
        """Our files in the temporary folder, and processes that were given it."""
        found = [path.name for path in self.temporary.iterdir() if path.name.startswith("tvm-codl-")]
        for process in psutil.process_iter(["pid", "environ"]):
            environment = process.info["environ"] or {}
            if environment.get("TMPDIR", "").startswith(str(self.temporary)) and not gone(process.pid):
                found.append(f"process {process.pid}")
        return found


@pytest.fixture()
def tvm_codl_line(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Server]]:
    """A tracker and a phone behind it that serves the key ``pixel``; both outlive every bad client."""
    with tvm_process("rpc_tracker") as (host, port):
        address = f"{host}:{port}"
        with phone_server(tmp_path_factory.mktemp("phone"), port=0, key="pixel", tracker=address) as server:
            wait_until(lambda: "pixel" in tracker_summary(host, port), "the phone registers")
            yield address, server
            assert server.process.poll() is None


@pytest.fixture(scope="module")
def library(tracked: tuple[str, Server], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real library of the small network, GPU and CPU halves of its first operator."""
    host, port = tracked[0].split(":")
    prepared = codl.prepare(codl.load_model("zoo:small"))
    plan = uniform_plan(prepared.graph, "gpu", "small")
    from tvm_codl.device.spec import Tracker

    with codl.connect(Tracker(host, int(port), "pixel")) as session:
        return session.build(prepared, plan, tmp_path_factory.mktemp("library") / "small.so")


def test_unknown_operator(tvm_codl_line: CommandLine) -> None:
    node = helper.make_node("FlyToTheMoon", ["x"], ["y"], domain="")
    save(tvm_codl_line.folder / "moon.onnx", [node], [1, 4], [1, 4])
    tvm_codl_line("plan", "moon.onnx").is_error(1, "moon.onnx", "FlyToTheMoon")


def test_dynamic_shape_without_shape(tvm_codl_line: CommandLine) -> None:
    save(tvm_codl_line.folder / "any.onnx", [helper.make_node("Relu", ["x"], ["y"])], ["n", 4], ["n", 4])
    tvm_codl_line("plan", "any.onnx").is_error(1, "--shape", "x")
    tvm_codl_line("plan", "any.onnx", "--shape", "z:[1,4]").is_error(1, "z")


def _axis(lines: list[dict]) -> None:
    lines[0]["placement"] = {"on": "split", "axis": "moon", "at": 1}


def _outside(lines: list[dict]) -> None:
    lines[0]["placement"] = {"on": "split", "axis": "height", "at": 32}


def _unknown(lines: list[dict]) -> None:
    lines.append({"operator": 99, "name": "conv", "placement": {"on": "cpu"}})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_axis, ["cannot be split along 'moon'", "legal placements", "split height"]),
        (_outside, ["cut 32 is outside 1..31 of height"]),
        (_unknown, ["operator 99", "does not have"]),
    ],
)
def test_illegal_hand_written_plan(
    tvm_codl_line: CommandLine, change: Callable[[list[dict]], None], words: list[str]
) -> None:
    prepared = codl.prepare(codl.load_model("zoo:small"))
    plan = json.loads(plan_json(uniform_plan(prepared.graph, "cpu", "small")))
    change(plan["operators"])
    (tvm_codl_line.folder / "plan.json").write_text(json.dumps(plan))
    # No phone is asked: the plan is checked before one is started.
    tvm_codl_line("build", "zoo:small", "--plan", "plan.json").is_error(1, *words)
    assert not (tvm_codl_line.folder / "model.so").exists()


def test_plan_that_is_no_json(tvm_codl_line: CommandLine) -> None:
    (tvm_codl_line.folder / "plan.json").write_text('{"operators": [\n  oops\n]}')
    tvm_codl_line("plan", "zoo:small", "--plan", "plan.json").is_error(1, "line 2", "oops", next=False)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "empty.c").write_text("int nothing(void) { return 0; }\n")
    compiler = next(c for c in ("cc", "gcc", "clang", "g++") if shutil.which(c))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "foreign.so", "empty.c"], cwd=folder, check=True)
    return folder / "foreign.so"


@pytest.mark.parametrize("name", ["random", "truncated", "one byte short", "foreign", "missing"])
def test_library_that_cannot_be_run(
    tvm_codl_line: CommandLine, tracked: tuple[str, Server], library: Path, foreign: Path, name: str
) -> None:
    whole = library.read_bytes()
    contents = {
        "random": np.random.default_rng(0).bytes(20_000),
        "truncated": whole[: len(whole) // 2],
        "one byte short": whole[:-1],
        "foreign": foreign.read_bytes(),
    }
    words = {
        "random": "is no 64-bit little-endian shared library",
        "truncated": "is cut off",
        "one byte short": "is cut off",
        "foreign": "was not built by tvm_codl",
        "missing": "does not exist",
    }
    if name in contents:
        (tvm_codl_line.folder / "bad.so").write_bytes(contents[name])
    done = tvm_codl_line("run", "bad.so", "--rpc-tracker", tracked[0], "--rpc-key", "pixel")
    done.is_error(1, "bad.so", words[name], "tvm-codl build")
    _idle(tracked[1])


def test_library_whose_insides_are_damaged(
    tvm_codl_line: CommandLine, tracked: tuple[str, Server], library: Path
) -> None:
    """The headers are sound and the program is not: the phone refuses it, or its session ends, and the next one is served."""
    damaged = bytearray(library.read_bytes())
    at = damaged.index(b'"buffers"')
    damaged[at : at + 200] = b"\x00" * 200
    (tvm_codl_line.folder / "bad.so").write_bytes(damaged)
    done = tvm_codl_line("run", "bad.so", "--rpc-tracker", tracked[0], "--rpc-key", "pixel")
    assert done.code in (1, 3)
    done.is_error(done.code)
    _idle(tracked[1])


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"input": np.zeros((1, 3, 16, 16), "float32")}, "input must be float32[1, 3, 32, 32]"),
        ({"input": np.zeros((1, 3, 32, 32), "float64")}, "given: float64[1, 3, 32, 32]"),
        ({"picture": np.zeros((1, 3, 32, 32), "float32")}, "the model takes the inputs ['input']"),
        (None, "is no .npz file"),
    ],
)
def test_wrong_inputs(
    tvm_codl_line: CommandLine, tracked: tuple[str, Server], library: Path, inputs: dict | None, words: str
) -> None:
    path = tvm_codl_line.folder / "in.npz"
    if inputs is None:
        path.write_bytes(b"garbage")
    else:
        np.savez(path, **inputs)
    done = tvm_codl_line("run", library, "-i", path, "--rpc-tracker", tracked[0], "--rpc-key", "pixel")
    done.is_error(1, words)


def test_a_tracker_that_is_not_there_and_a_key_that_nobody_serves(
    tvm_codl_line: CommandLine, tracked: tuple[str, Server], library: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = f"127.0.0.1:{probe.getsockname()[1]}"
    tvm_codl_line("run", library, "--rpc-tracker", free, "--rpc-key", "pixel").is_error(3, f"no tracker at {free}")
    done = tvm_codl_line("run", library, "--rpc-tracker", tracked[0], "--rpc-key", "iphone")
    done.is_error(3, "no phone serves the key 'iphone'", "keys there: pixel", "tvm-codl serve --tracker")


def test_a_phone_that_is_killed_in_the_middle_of_a_run(
    tvm_codl_line: CommandLine, tracked: tuple[str, Server], library: Path
) -> None:
    address, server = tracked
    arguments = ["run", library, "--rpc-tracker", address, "--rpc-key", "pixel", "--repeat", 10, "--number", 10**6]
    process = tvm_codl_line.start(*arguments)
    wait_until(lambda: server.session_pids() != [], "a session starts")
    (session,) = server.session_pids()
    # Minutes of work lie before it: once it has used a second of CPU time more than it takes to load, it runs.
    wait_until(lambda: _busy_s(session) > 3.0, "the session runs")
    os.kill(session, signal.SIGKILL)
    started = time.monotonic()
    tvm_codl_line.finish(process).is_error(3, "went away", "next: ")
    assert time.monotonic() - started < 10
    _idle(server)
    assert tvm_codl_line("run", library, "--rpc-tracker", address, "--rpc-key", "pixel").code == 0


def test_a_local_phone_that_is_killed_in_the_middle_of_measuring(tvm_codl_line: CommandLine) -> None:
    process = tvm_codl_line.start("plan", "zoo:small", "--budget", "5", "--records", "records.sqlite")

    def sessions() -> list[psutil.Process]:
        servers = [
            c for c in psutil.Process(process.pid).children() if "tvm_codl.device.reference.server" in _command(c)
        ]
        return [session for server in servers for session in server.children()]

    wait_until(lambda: bool(sessions()), "a session starts")
    sessions()[0].kill()
    tvm_codl_line.finish(process, 60.0).is_error(3)


def _command(process: psutil.Process) -> str:
    """Empty where it has ended meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _busy_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _idle(server: Server) -> None:
    wait_until(lambda: server.session_pids() == [], "the session ends", 5)
    assert server.process.poll() is None
