"""The native server's reading of what strangers send: fuzzed under sanitizers, and compared with the reference phone's."""

from __future__ import annotations

import socket
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm.rpc import base

from tests.examples import examples
from tvm_codl.device.handshake import Refused, accept_client
from tvm_codl.runtime.platforms import platform
from tvm_codl.runtime.server_build import SOURCES

RUNS = 200_000
OPTIONS = ("-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fuzzer with our own driver, under AddressSanitizer and UBSan where the compiler has them."""
    program = tmp_path_factory.mktemp("fuzz") / "fuzz"
    sources = [SOURCES / "src" / name for name in ("handshake.cc", "packets.cc")]
    sources += sorted((SOURCES / "fuzz").glob("*.cc"))
    line = [platform("host").cxx, *OPTIONS, *map(str, sources), "-o", str(program)]
    sanitized = [*line, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    done = subprocess.run(sanitized, capture_output=True, text=True, timeout=300, check=False)
    if "asan" in done.stderr and "cannot find" in done.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.parametrize("seed", [1, 2])
def test_no_input_breaks_a_promise(driver: Path, seed: int) -> None:
    done = subprocess.run([str(driver), str(RUNS), str(seed)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"{RUNS} inputs" in done.stdout


def reference(words: bytes) -> str:
    """What the reference phone's reading says of a client's words, in the driver's."""
    client, server = socket.socketpair()
    with client, server:
        client.sendall(words)
        client.shutdown(socket.SHUT_WR)
        try:
            return f"text {accept_client(server, 'pixel', 'pixel') or 0:.17g}"
        except Refused as error:
            return "unfinished" if "closed" in str(error) else "refused"


KEYS = st.sampled_from(["client:pixel", "client:pixe", "client:pixel2", "server:pixel", "client:", ""])
LIMITS = st.sampled_from(
    ["", " -timeout=2.5", " -timeout=0", " -timeout=", " -timeout=soon", " -timeout=-1", " x", "\t"]
)
RIGHT = st.builds(
    lambda key, limit: struct.pack("<ii", base.RPC_MAGIC, len(key + limit)) + (key + limit).encode(), KEYS, LIMITS
)
CLAIMS = st.builds(
    lambda number, size, text: struct.pack("<ii", number, size) + text,
    st.sampled_from([base.RPC_MAGIC, 0, -1]),
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=20),
)
CUT = st.builds(lambda words, at: words[:at], RIGHT, st.integers(0, 40))


@settings(max_examples=examples(5), suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(RIGHT, CLAIMS, CUT, st.binary(max_size=40)), min_size=100, max_size=200))
def test_it_judges_as_the_reference_phone_does(driver: Path, inputs: list[bytes]) -> None:
    frames = b"".join(struct.pack("<i", len(words)) + words for words in inputs)
    done = subprocess.run([str(driver), "read"], input=frames, capture_output=True, timeout=60, check=True)
    for words, said in zip(inputs, done.stdout.decode().splitlines(), strict=True):
        wanted = reference(words)
        if b"-timeout=-1" in words and wanted.startswith("text"):
            wanted = "refused"  # a time before now, which only the native server takes for a mistake
        assert said == wanted, words
