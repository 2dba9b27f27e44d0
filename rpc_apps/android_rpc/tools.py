"""The programs and jars that make an APK, found in an Android SDK or as ``docker/install/app.sh`` installs them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from rpc_apps.android_rpc.tvm4j import HERE, java_tool
from tvm_codl.errors import UserError
from tvm_codl.paths import cache_dir

INSTALL = "docker/install/app.sh, or an SDK of Android Studio in ANDROID_HOME"
DX = "com.android.dx.command.Main"


def properties() -> dict[str, str]:
    """``gradle.properties``, which Gradle and the command line share."""
    lines = (HERE / "gradle.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"\w[\w.]*=", line))


def jars() -> Path:
    return Path(os.environ.get("CODL_APP_JARS") or cache_dir() / "app-jars")


def jar(pattern: str) -> Path:
    """A jar of ``tools/pom.xml``.  Raises :class:`UserError` if it was not fetched."""
    newest = max(jars().glob(pattern), default=None)
    if newest is None:
        raise UserError(f"{pattern} is missing", f"not in {jars()}", INSTALL)
    return newest


def _in_sdk(pattern: str) -> Path | None:
    """The newest such file of the SDK that ANDROID_HOME names."""
    home = os.environ.get("ANDROID_HOME") or os.environ.get("ANDROID_SDK_ROOT")
    return max(Path(home).glob(pattern), default=None) if home else None


def program(name: str) -> str:
    """The path of ``aapt2``, ``zipalign`` or ``apksigner``: the SDK's newest, else on PATH."""
    path = _in_sdk(f"build-tools/*/{name}") or shutil.which(name)
    if path is None:
        raise UserError(f"{name} is missing", "neither in ANDROID_HOME nor on PATH", INSTALL)
    return str(path)


def android_jar() -> Path:
    """Android's API at the app's target level, with the framework's resources."""
    return _in_sdk(f"platforms/android-{properties()['targetSdk']}/android.jar") or jar("android-all-14-*.jar")


def dexer() -> list[str]:
    """The command that turns classes into ``classes.dex``, without its input: the SDK's d8, else dx."""
    level, d8 = properties()["minSdk"], _in_sdk("build-tools/*/d8")
    if d8:
        return [str(d8), "--release", "--min-api", level, "--lib", str(android_jar())]
    return [java_tool("java"), "-cp", str(jar("dalvik-dx-*.jar")), DX, "--dex", f"--min-sdk-version={level}"]
