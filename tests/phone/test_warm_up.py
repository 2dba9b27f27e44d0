"""The reference phone compiles a library's OpenCL kernels before it runs, on two cores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import tvm

from tests.phone import servers
from tests.phone.servers import Server, at, phone_server, wait_until
from tests.runtime.adaptive_networks import PLANS, library
from tests.runtime.partitions import convolutions
from tvm_codl.build.library import build
from tvm_codl.device.connect import connect
from tvm_codl.device.cores import phone_environment
from tvm_codl.device.reference import warm_up
from tvm_codl.device.reference.warm_up import kernels_of
from tvm_codl.measure.worker import open_remote


@pytest.fixture()
def compiled(tmp_path: Path) -> Path:
    """Where PoCL keeps what it compiled; empty."""
    return tmp_path / "kernels"


@pytest.fixture()
def server(tmp_path: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(servers, "phone_environment", lambda: {**phone_environment(), "POCL_CACHE_DIR": str(compiled)})
    with phone_server(tmp_path, port=0) as started:
        yield started


def exported(path: Path) -> Path:
    return build(convolutions()[0], tvm.target.Target("llvm"), tvm.target.Target("opencl")).export(path)


def machine_code(folder: Path) -> set[Path]:
    return set(folder.rglob("*.so"))


def test_all_kernels_are_compiled_before_the_first_run(server: Server, compiled: Path, library_path: Path) -> None:
    path = exported(library_path)
    program = tvm.runtime.load_module(str(path))["program"]()
    with connect(at(server)) as phone:
        module = open_remote(phone, path)
        found = machine_code(compiled)
        assert len(found) >= len(kernels_of(program)) > 1
        module.run({"x": np.zeros((1, 12, 12, 16), "float32")})
    assert machine_code(compiled) == found


def test_without_its_helper_the_session_compiles_all(server: Server, compiled: Path, library_path: Path) -> None:
    path = exported(library_path)
    with connect(at(server)) as phone:
        (session,) = (psutil.Process(pid) for pid in server.session_pids())
        (helper,) = session.children()
        helper.kill()
        open_remote(phone, path)
    assert len(machine_code(compiled)) >= len(kernels_of(tvm.runtime.load_module(str(path))["program"]())) > 1


def test_the_helper_ends_with_the_session(server: Server) -> None:
    with connect(at(server)):
        (session,) = (psutil.Process(pid) for pid in server.session_pids())
        (helper,) = session.children()
    wait_until(lambda: servers.gone(helper.pid), "the helper ends", 10)


def test_a_library_of_several_plans_has_each_kernel_once() -> None:
    kernels = kernels_of(library().module["program"]())
    names = [name for name, _ in kernels]
    assert len(names) == len(set(names)) > len(PLANS)


def test_what_another_process_has_claimed_is_left_to_it(
    opencl: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    class Recorded:
        """Stands for a library."""

        def get_function(self, name: str, query_imports: bool) -> object:
            return lambda: ran.append(name)

    calls = [(name, ()) for name in "abcde"]
    numbered = list(enumerate(calls))
    warm_up.run(Recorded(), numbered[:3], tmp_path)
    warm_up.run(Recorded(), reversed(numbered), tmp_path)
    assert ran == ["a", "b", "c", "e", "d"]


def test_a_library_that_is_none_of_ours_is_left_alone(server: Server, tmp_path: Path) -> None:
    x = tvm.te.placeholder((4,), name="x")
    y = tvm.te.compute((4,), lambda i: x[i] + 1)
    path = tmp_path / "add.so"
    tvm.build(tvm.te.create_schedule(y.op), [x, y], "llvm", name="add").export_library(str(path))
    with connect(at(server)) as phone:
        phone.send(path, path.name)
        module = phone.remote.load_module(path.name)
        phone.remote.get_function("codl.compile_kernels")(module, path.name)
        again = phone.remote.get_function("codl.warm_up")
        again(module, path.name, json.dumps(["missing"]), "[]")
        given, got = tvm.nd.array(np.zeros(4, "float32"), phone.cpu), tvm.nd.empty((4,), "float32", phone.cpu)
        module.get_function("add")(given, got)
        np.testing.assert_array_equal(got.numpy(), np.ones(4))
