"""docker/: the install scripts run, and the images do nothing but call them; nothing is open to other machines by itself."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

DOCKER = Path(__file__).parents[2] / "docker"
SCRIPTS = sorted((DOCKER / "install").glob("*.sh"))
IMAGES = sorted(DOCKER.glob("*Dockerfile"))
INSTRUCTIONS = {"FROM", "ARG", "ENV", "COPY", "WORKDIR", "RUN", "ENTRYPOINT", "CMD", "USER"}
RUN = re.compile(r"docker/install/([a-z0-9_]+\.sh)((?: [a-z0-9/_.]+)*)")
LOOPBACK = "${CODL_BIND:-127.0.0.1}"


def called(path: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(path), *map(str, words)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def instructions(image: Path) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", image.read_text(encoding="utf-8"))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_they_are_there() -> None:
    assert {"host.sh", "user.sh", "tvm_codl.sh", "android.sh"} <= {path.name for path in SCRIPTS}
    assert {path.name for path in IMAGES} == {"Dockerfile", "app.Dockerfile"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_stop_at_the_first_error(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    shell = text.splitlines()[0]
    assert shell in ("#!/bin/sh", "#!/bin/bash", "#!/usr/bin/env bash")
    assert re.search(r"^set -eu", text, re.MULTILINE)
    assert os.access(script, os.X_OK)
    subprocess.run([shell.split("/")[-1].split()[-1], "-n", str(script)], check=True, timeout=20)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    beside = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([str(beside), str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.name)
def test_images_only_call_the_scripts(image: Path) -> None:
    lines = instructions(image)
    assert lines and {word for word, _ in lines} <= INSTRUCTIONS
    runs = [rest for word, rest in lines if word == "RUN"]
    for rest in runs:
        match = RUN.fullmatch(rest)
        assert match, rest
        assert (DOCKER / "install" / match[1]).exists(), rest
    assert runs
    last_user = [rest for word, rest in lines if word == "USER"][-1]
    assert last_user == "codl"
    assert not re.search(r"https?://", image.read_text(encoding="utf-8"))


def test_copied_files_are_there() -> None:
    for image in IMAGES:
        for word, rest in instructions(image):
            sources = [one for one in rest.split()[:-1] if not one.startswith("--")] if word == "COPY" else []
            assert all((DOCKER.parent / one).exists() for one in sources), rest


def test_the_farm_is_reached_from_this_machine_only() -> None:
    farm: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
    assert set(farm["services"]) == {"tracker", "proxy"}
    for name, service in farm["services"].items():
        assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        command = service["command"]
        assert command[:3] == ["python", "-m", f"tvm.exec.rpc_{name}"]
        host, port = (command[command.index(word) + 1] for word in ("--host", "--port"))
        if service.get("network_mode") == "host":
            assert host == LOOPBACK and "ports" not in service
        else:
            assert service["ports"] == [f"{LOOPBACK}:{port}:{port}"]
        assert service["cap_drop"] == ["ALL"]


@pytest.mark.skipif(not shutil.which("g++") or not shutil.which("make"), reason="would install packages")
def test_what_is_installed_already_is_left_alone() -> None:
    for _ in range(2):
        done = called(DOCKER / "install/host.sh", CODL_NO_ADB="1")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture()
def archive(tmp_path: Path) -> Path:
    """What an NDK's archive looks like: one top folder, programs that are executable."""
    path = tmp_path / "ndk.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("android-ndk-r99/source.properties", "Pkg.Revision = 99.0\n")
        program = zipfile.ZipInfo("android-ndk-r99/bin/clang++")
        program.external_attr = 0o755 << 16
        file.writestr(program, "#!/bin/sh\n")
    return path


@pytest.mark.skipif(not shutil.which("curl") or not shutil.which("unzip"), reason="curl or unzip is not installed")
def test_an_ndk_is_unpacked_once_and_only_with_its_checksum(archive: Path, tmp_path: Path) -> None:
    script, folder = DOCKER / "install/android.sh", tmp_path / "ndk"
    url, checksum = archive.as_uri(), hashlib.sha256(archive.read_bytes()).hexdigest()
    for wrong in ("", "abc", "0" * 64):
        done = called(script, "ndk", folder, NDK_URL=url, NDK_SHA256=wrong)
        assert done.returncode == 1 and "NDK_SHA256" in done.stderr
        assert not folder.exists() or not list(folder.iterdir())
    done = called(script, "ndk", folder, NDK_URL=url, NDK_SHA256=checksum)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["bin", "source.properties"]
    assert os.access(folder / "bin/clang++", os.X_OK)
    archive.unlink()
    assert called(script, "ndk", folder, NDK_URL=url, NDK_SHA256=checksum).returncode == 0
    done = called(script, "sdk", tmp_path / "sdk", SDK_URL=url, SDK_SHA256=checksum)
    assert done.returncode != 0 and not (tmp_path / "sdk" / "platforms").exists()


def test_without_an_ndk_it_is_said_how_to_give_one(tmp_path: Path) -> None:
    done = called(DOCKER / "install/android.sh", "ndk", tmp_path / "ndk", NDK_URL="", NDK_SHA256="")
    assert done.returncode == 0 and "mounted at" in done.stdout
    (tmp_path / "ndk").mkdir()
    (tmp_path / "ndk" / "source.properties").touch()
    done = called(DOCKER / "install/android.sh", "ndk", tmp_path / "ndk")
    assert done.stdout == f"NDK: {tmp_path}/ndk\n"
    assert called(DOCKER / "install/android.sh", "jdk", tmp_path).returncode == 2
