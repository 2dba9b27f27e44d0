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
    matches = sorted(jars().glob(pattern))
    if not matches:
        raise UserError(f"{pattern} is missing", f"not in {jars()}", INSTALL)
    return matches[-1]


def _sdk() -> Path | None:
    home = os.environ.get("ANDROID_HOME") or os.environ.get("ANDROID_SDK_ROOT")
    return Path(home) if home else None


def program(name: str) -> str:
    """The path of ``aapt2``, ``zipalign`` or ``apksigner``: the SDK's newest, else on PATH."""
    sdk = _sdk()
    in_sdk = sorted(sdk.glob(f"build-tools/*/{name}")) if sdk else []
    path = str(in_sdk[-1]) if in_sdk else shutil.which(name)
    if path is None:
        raise UserError(f"{name} is missing", "neither in ANDROID_HOME nor on PATH", INSTALL)
    return path


def android_jar() -> Path:
    """Android's API at the app's target level, with the framework's resources."""
    sdk, level = _sdk(), properties()["targetSdk"]
    in_sdk = sdk / f"platforms/android-{level}/android.jar" if sdk else None
    if in_sdk is not None and in_sdk.exists():
        return in_sdk
    return jar("android-all-14-*.jar")


def dexer() -> list[str]:
    """The command that turns classes into ``classes.dex``, without its input: the SDK's d8, else dx."""
    sdk, level = _sdk(), properties()["minSdk"]
    d8 = sorted(sdk.glob("build-tools/*/d8")) if sdk else []
    if d8:
        return [str(d8[-1]), "--release", "--min-api", level, "--lib", str(android_jar())]
    return [java_tool("java"), "-cp", str(jar("dalvik-dx-*.jar")), DX, "--dex", f"--min-sdk-version={level}"]
