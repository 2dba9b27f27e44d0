"""Measuring over a network of 20 ms delay and 1 % loss: proxy, tracker, phone and client each at an address of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.phone.far_network import FarNetwork, Host, far_network, unavailable
from tests.phone.servers import wait_until
from tvm_codl.device.cores import phone_environment
from tvm_codl.device.reference.serve import command
from tvm_codl.records.store import RecordStore

pytestmark = pytest.mark.slow

PORT = 9190
DELAY_S, LOSS = 0.020, 0.01
PATIENCE_S = 120.0


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    if why := unavailable():
        pytest.skip(why)


@pytest.fixture(scope="module")
def network() -> Iterator[FarNetwork]:
    with far_network(("tracker", "proxy", "phone", "client"), DELAY_S, LOSS) as made:
        yield made


@contextlib.contextmanager
def running(host: Host, log: Path, *words: object, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A server at ``host``, ended with all that it started."""
    environment = {**os.environ, **variables}
    with log.open("w") as file:
        process = subprocess.Popen(host.command(*words), env=environment, stdout=file, stderr=file, text=True)
    try:
        yield process
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        process.wait(10)


def tvm_server(module: str, host: Host, log: Path) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    line = [sys.executable, "-m", f"tvm.exec.{module}", "--host", host.address]
    web = ("--web-port", 0) if module == "rpc_proxy" else ()
    return running(host, log, *line, "--port", PORT, "--port-end", PORT + 1, *web)


#: How a session that completes ends: its budget is spent, or there was nothing left to gain by then.
ENDED = ("budget", "stands", "all measured")


def round_trip_s(network: FarNetwork) -> float:
    """The shortest of some connections from client to tracker, whose first two packets go there and back."""
    script = f"""
import socket, time
times = []
for _ in range(5):
    start = time.monotonic()
    socket.create_connection(("{network.hosts["tracker"].address}", {PORT}), 20).close()
    times.append(time.monotonic() - start)
print(min(times))
"""
    done = subprocess.run(
        network.hosts["client"].command(sys.executable, "-c", script), capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def measure(network: FarNetwork, folder: Path, way: str) -> dict[str, object]:
    """A measuring session of the command line, which ends within its budget."""
    records = folder / "records.sqlite"
    line = [sys.executable, "-m", "tvm_codl", "measure", "zoo:small", "--budget", "6", "--json", "--rpc-key", "far"]
    where = [
        f"--rpc-{way}",
        f"{network.hosts[way].address}:{PORT}",
        "--rpc-timeout",
        str(PATIENCE_S),
        "--records",
        str(records),
    ]
    done = subprocess.run(
        network.hosts["client"].command(*line, *where), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    with RecordStore(records) as store:
        found = list(store.query())
        assert len(found) == 6 and all(r.ok and min(r.times_ms) > 0 for r in found)
    return dict(json.loads(done.stdout))


def test_measuring_through_a_tracker_with_20_ms_delay_and_1_percent_loss(network: FarNetwork, tmp_path: Path) -> None:
    tracker, phone = network.hosts["tracker"], network.hosts["phone"]
    line = command(
        host=phone.address, port=PORT, key="far", tracker=f"{tracker.address}:{PORT}", work_dir=tmp_path / "w"
    )
    with tvm_server("rpc_tracker", tracker, tmp_path / "tracker.log"):
        wait_until(lambda: tracker.listens(PORT), "the tracker listens", PATIENCE_S)
        assert round_trip_s(network) > 2 * DELAY_S
        with running(phone, tmp_path / "phone.log", *line, **phone_environment()):
            log = tmp_path / "phone.log"
            wait_until(lambda: "registered" in log.read_text(), "the phone registers", PATIENCE_S)
            found = measure(network, tmp_path, "tracker")
            assert found["measured"] == 6 and found["ended"] in ENDED
    assert network.lost > 0
    assert sum(host.resent_segments() for host in network.hosts.values()) > 0  # and arrived then
    for a, b in (("client", "tracker"), ("client", "phone"), ("phone", "tracker")):
        assert network.between(a, b) > 0


def test_measuring_through_a_proxy_with_20_ms_delay_and_1_percent_loss(network: FarNetwork, tmp_path: Path) -> None:
    proxy, phone = network.hosts["proxy"], network.hosts["phone"]
    line = command(proxy=f"{proxy.address}:{PORT}", key="far", work_dir=tmp_path / "w")
    before, lost = network.between("client", "phone"), network.lost
    with tvm_server("rpc_proxy", proxy, tmp_path / "proxy.log"):
        wait_until(lambda: proxy.listens(PORT), "the proxy listens", PATIENCE_S)
        with running(phone, tmp_path / "phone.log", *line, **phone_environment()):
            found = measure(network, tmp_path, "proxy")
            assert found["measured"] == 6 and found["ended"] in ENDED
    assert network.lost > lost
    assert network.between("client", "proxy") > 0 and network.between("phone", "proxy") > 0
    assert network.between("client", "phone") == before  # all that they say goes through the proxy
