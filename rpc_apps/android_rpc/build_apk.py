"""Builds and signs the app without Gradle: ``python -m rpc_apps.android_rpc.build_apk -o tvm-codl-rpc.apk``.

From the same manifest, resources, Java and C++ sources as Gradle, with aapt2, javac, d8 or dx, zipalign and apksigner.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from rpc_apps.android_rpc import native, tools
from rpc_apps.android_rpc.tvm4j import HERE, java_sources, java_tool, javac
from tvm_codl.errors import CodlError
from tvm_codl.runtime.compile import run

MAIN = HERE / "app/src/main"
ANDROID = "http://schemas.android.com/apk/res/android"
#: The password and alias of a debug key, as Android Studio's.  A published app needs a key of its own.
DEBUG_KEY = ("android", "androiddebugkey")


def build_apk(output: Path, work: Path, library: Path | None, keystore: Path | None = None) -> Path:
    """Builds a signed APK.  Without the native ``library`` the app starts but cannot serve.

    ``keystore`` has the debug key's passwords; without one a debug key is made.  Raises :class:`UserError` if a tool is
    missing or fails.
    """
    properties = tools.properties()
    generated, base = link_resources(work)
    classes = work / "classes"
    sources = [*sorted((MAIN / "java").rglob("*.java")), *sorted(generated.rglob("*.java")), *java_sources()]
    javac(sources, classes, [tools.android_jar()])
    dex = _dex(classes, work)
    unaligned, aligned = work / "unaligned.apk", work / "aligned.apk"
    shutil.copyfile(base, unaligned)
    with zipfile.ZipFile(unaligned, "a", zipfile.ZIP_DEFLATED) as package:
        package.write(dex, "classes.dex")
        if library is not None:
            package.write(library, f"lib/{properties['abi']}/{library.name}")
    run([tools.program("zipalign"), "-f", "-p", "4", unaligned, aligned], "the APK cannot be aligned")
    output.parent.mkdir(parents=True, exist_ok=True)
    _sign(aligned, output, keystore or _debug_key(work))
    return output


def link_resources(work: Path) -> tuple[Path, Path]:
    """Makes ``R.java``, whose folder it returns, and an APK of the manifest and the resources without code."""
    properties = tools.properties()
    resources, base, generated = work / "resources.zip", work / "base.apk", work / "generated"
    aapt2 = tools.program("aapt2")
    run([aapt2, "compile", "--dir", MAIN / "res", "-o", resources], "the app's resources do not compile")
    run([
        aapt2, "link", "-I", tools.android_jar(), "--manifest", _manifest(work, properties["applicationId"]),
        "--min-sdk-version", properties["minSdk"], "--target-sdk-version", properties["targetSdk"], "--version-code",
        properties["versionCode"], "--version-name", properties["versionName"], "--warn-manifest-validation",
        "--java", generated, "-o", base, resources,
    ], "the app's manifest and resources do not link")  # fmt: skip
    return generated, base


def _manifest(work: Path, package: str) -> Path:
    """Adds the package's name, which Gradle refuses in the manifest and takes from its own file."""
    ElementTree.register_namespace("android", ANDROID)
    tree = ElementTree.parse(MAIN / "AndroidManifest.xml")
    tree.getroot().set("package", package)
    path = work / "AndroidManifest.xml"
    tree.write(path, encoding="utf-8", xml_declaration=True)
    return path


def _dex(classes: Path, work: Path) -> Path:
    command, dex = tools.dexer(), work / "classes.dex"
    if tools.DX in command:
        run([*command, f"--output={dex}", classes], "dx does not take the classes")
    else:
        run([*command, "--output", work, *sorted(classes.rglob("*.class"))], "d8 does not take the classes")
    return dex


def _debug_key(work: Path) -> Path:
    password, alias = DEBUG_KEY
    path = work / "debug.keystore"
    run([
        java_tool("keytool"), "-genkeypair", "-keystore", path, "-storepass", password, "-keypass", password, "-alias", alias,
        "-keyalg", "RSA", "-keysize", "2048", "-validity", "10000", "-dname", "CN=Android Debug", "-storetype", "PKCS12",
    ], "no debug key can be made")  # fmt: skip
    return path


def _sign(aligned: Path, output: Path, keystore: Path) -> None:
    password, alias = DEBUG_KEY
    run([
        tools.program("apksigner"), "sign", "--ks", keystore, "--ks-key-alias", alias, "--ks-pass", f"pass:{password}",
        "--key-pass", f"pass:{password}", "--min-sdk-version", tools.properties()["minSdk"], "--v2-signing-enabled", "true",
        "--v3-signing-enabled", "true", "--out", output, aligned,
    ], "the APK cannot be signed")  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rpc_apps.android_rpc.build_apk", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/tvm-codl-rpc.apk"))
    parser.add_argument("--keystore", type=Path, help="a debug keystore to sign with (made anew by default)")
    parser.add_argument(
        "--without-native", action="store_true", help="no native library: to check the packaging, not to serve"
    )
    options = parser.parse_args(words)
    try:
        with tempfile.TemporaryDirectory(prefix="codl-apk-") as folder:
            work = Path(folder)
            library = None if options.without_native else native.build_native(work / "native")
            print(build_apk(options.output, work, library, options.keystore))
    except CodlError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
