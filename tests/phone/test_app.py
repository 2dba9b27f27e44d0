"""The Android app: its logic on a JVM, its APK as the command line makes it, its screen and services on Robolectric."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import tvm

from rpc_apps.android_rpc import native, tools, tvm4j
from rpc_apps.android_rpc.build_apk import build_apk, link_resources
from tests.phone.app import compiled_server, export_library, java_server, use
from tests.phone.servers import tvm_process
from tvm_codl.errors import UserError
from tvm_codl.runtime.platforms import NDK_COMPILER, NDK_FOLDERS, platform

TESTS = tvm4j.HERE / "app/src/test"
STANDINS = tvm4j.HERE / "app/src/standins/java"
PERMISSIONS = {
    "android.permission.INTERNET",
    "android.permission.FOREGROUND_SERVICE",
    "android.permission.FOREGROUND_SERVICE_SPECIAL_USE",
    "android.permission.POST_NOTIFICATIONS",
    "android.permission.WAKE_LOCK",
}


@pytest.fixture(scope="module")
def needs_tools() -> None:
    """Skips, in words, where ``docker/install/app.sh`` has not run and no SDK is there."""
    try:
        for name in ("aapt2", "aapt", "zipalign", "apksigner"):
            tools.program(name)
        tools.android_jar(), tools.dexer(), tvm4j.java_tool("keytool")
    except UserError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def apk(needs_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("apk")
    library = native.build_native(folder / "native") if _has_ndk() else None
    return build_apk(folder / "app.apk", folder, library)


def _has_ndk() -> bool:
    """A real one: TVM_NDK_CC alone may be a linker, and has no headers."""
    try:
        return "ANDROID_NDK_HOME" in os.environ and bool(platform("android-arm64"))
    except UserError:
        return False


def _junit(class_path: Sequence[Path], names: Sequence[str], *options: str) -> str:
    words = [tvm4j.java_tool("java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options]
    words += ["-cp", ":".join(map(str, class_path)), "org.junit.runner.JUnitCore", *names]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    # JUnit's own words, without the frames below ours.
    told = [line for line in done.stdout.splitlines() if not re.match(r"\s+(at (?!org\.tvmcodl)|\.\.\.)", line)]
    assert done.returncode == 0, "\n".join(told) + done.stderr[-2000:]
    return done.stdout


def _count(folder: Path, names: Sequence[str]) -> int:
    return sum(path.read_text().count("@Test") for path in folder.rglob("*.java") if path.stem in names)


def test_settings_handshakes_supervisor_and_watchdog(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    names = ("SettingsTest", "ServerPortTest", "SupervisorTest")
    try:
        junit = [tools.jar("junit-4.13.2.jar"), tools.jar("hamcrest-core-*.jar")]
    except UserError as missing:
        pytest.skip(str(missing))
    binding, classes = compiled_server(tmp_path_factory.mktemp("logic"))
    here = [classes, binding.classes, *junit]
    sources = sorted((TESTS / "java/org/tvmcodl/rpc/serve").glob("*.java"))
    tvm4j.javac(sources, tmp_path / "tests", here, "--release", "11")
    told = _junit([tmp_path / "tests", *here], [f"org.tvmcodl.rpc.serve.{name}" for name in names])
    assert f"OK ({_count(TESTS, names)} tests)" in told


def test_the_apk_is_signed_for_the_oldest_and_the_newest_android(apk: Path) -> None:
    said = tvm4j.run([tools.program("apksigner"), "verify", "--verbose", "--min-sdk-version", "24", apk], "not signed")
    assert re.search(r"^Verified using v2 scheme .*: true$", said, re.MULTILINE)
    assert re.search(r"^Verified using v3 scheme .*: true$", said, re.MULTILINE)
    tvm4j.run([tools.program("zipalign"), "-c", "-p", "4", apk], "not aligned")
    with zipfile.ZipFile(apk) as package:
        # From Android 11 on, a packed resources.arsc is not installed.
        assert package.getinfo("resources.arsc").compress_type == zipfile.ZIP_STORED
        assert package.read("classes.dex").startswith(b"dex\n")


def test_a_signature_does_not_outlive_a_change(apk: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.apk"
    whole = bytearray(apk.read_bytes())
    at = whole.index(b"dex\n") if b"dex\n" in whole else len(whole) // 3
    whole[at + 64] ^= 1
    changed.write_bytes(whole)
    with pytest.raises(UserError):
        tvm4j.run([tools.program("apksigner"), "verify", "--min-sdk-version", "24", changed], "not signed")


def test_the_manifest_asks_for_what_it_needs_and_no_more(apk: Path) -> None:
    badging = tvm4j.run([tools.program("aapt"), "dump", "badging", apk], "aapt cannot read the APK")
    assert "package: name='org.tvmcodl.rpc'" in badging
    assert "sdkVersion:'24'" in badging
    assert "targetSdkVersion:'34'" in badging
    assert set(re.findall(r"uses-permission: name='([^']+)'", badging)) == PERMISSIONS
    assert "launchable-activity: name='org.tvmcodl.rpc.MainActivity'" in badging
    tree = tvm4j.run([tools.program("aapt2"), "dump", "xmltree", "--file", "AndroidManifest.xml", apk], "no manifest")
    native_library = tree.split("E: uses-native-library")[1].split("E: ")[0]
    assert '"libOpenCL.so"' in native_library and re.search(r"required\(0x\w+\)=false", native_library)
    assert re.search(r'process\(0x\w+\)=":session"', tree)
    assert re.search(r"foregroundServiceType\(0x\w+\)=0x40000000", tree)  # specialUse
    assert tree.count("exported(0x") == 3


def test_the_code_of_the_app_and_of_tvm4j_is_in_it(apk: Path) -> None:
    with zipfile.ZipFile(apk) as package:
        dex = package.read("classes.dex")
        names = package.namelist()
    for name in ("MainActivity", "ServerService", "SessionService", "serve/Supervisor"):
        assert f"Lorg/tvmcodl/rpc/{name};".encode() in dex
    assert b"Lorg/apache/tvm/Module;" in dex
    assert b"org/tvmcodl/rpc/jvm" not in dex
    assert (f"lib/arm64-v8a/{native.LIBRARY}" in names) == _has_ndk()


def test_without_an_ndk_the_app_is_refused_not_faked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*NDK_FOLDERS, NDK_COMPILER):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="no Android NDK"):
        native.build_native(tmp_path)


def test_what_gradle_reads_is_what_the_command_line_reads() -> None:
    gradle = (tvm4j.HERE / "app/build.gradle").read_text()
    for name in ("applicationId", "minSdk", "targetSdk", "versionCode", "versionName", "abi"):
        assert f"rootProject.property('{name}')" in gradle
        assert tools.properties()[name]
    # CMake looks for javac, which Gradle runs on and JAVA_HOME often does not name.
    assert "-DCODL_JAVA_HOME=${System.getProperty('java.home')}" in gradle
    wrapper = (tvm4j.HERE / "gradle/wrapper/gradle-wrapper.properties").read_text()
    assert re.search(r"^distributionSha256Sum=[0-9a-f]{64}$", wrapper, re.MULTILINE)


@pytest.mark.slow
def test_the_screen_and_the_services(needs_tools: None, tmp_path: Path) -> None:
    try:
        tools.jar("robolectric-4.*.jar")
    except UserError as missing:
        pytest.skip(str(missing))
    generated, resources = link_resources(tmp_path)
    android = tools.jar("android-all-*.jar")
    # Robolectric loads android-all itself, and changes it as it does; JUnit needs to see its classes too.
    jars = sorted(path for path in tools.jars().glob("*.jar") if path != android and "dalvik-dx" not in path.name)
    classes, tests = tmp_path / "classes", tmp_path / "tests"
    sources = [*(tvm4j.HERE / "app/src/main/java").rglob("*.java"), *generated.rglob("*.java"), *tvm4j.java_sources()]
    tvm4j.javac(sources, classes, [android])
    checks = [*STANDINS.rglob("*.java"), *(TESTS / "java/org/tvmcodl/rpc").glob("*.java")]
    tvm4j.javac(checks, tests, [classes, *jars, android], "--release", "11")
    settings = tests / "com/android/tools/test_config.properties"
    settings.parent.mkdir(parents=True)
    package = tools.properties()["applicationId"]
    settings.write_text(
        f"android_merged_manifest={tmp_path / 'AndroidManifest.xml'}\nandroid_resource_apk={resources}\n"
        f"android_custom_package={package}\n"
    )
    told = _junit(
        [tests, TESTS / "resources", classes, *jars, android],
        ["org.tvmcodl.rpc.AppTest"],
        "-Drobolectric.offline=true",
        "-Drobolectric.usePreinstrumentedJars=false",
        f"-Drobolectric.dependency.dir={tools.jars()}",
        f"-Djava.io.tmpdir={tmp_path}",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "--add-opens=java.base/java.util=ALL-UNNAMED",
    )
    assert f"OK ({_count(TESTS, ['AppTest'])} tests)" in told


@pytest.mark.slow
def test_the_packed_library_serves_on_this_machine(tmp_path: Path) -> None:
    """What the NDK builds for a phone, built with this machine's compiler and run in a JVM: JNI, runtime, co-executor."""
    binding, _ = compiled_server(tmp_path / "java")
    packed = native.build_native(tmp_path / "native", "host")
    binding.library.unlink()  # so that tvm4j looks for the packed one, as it does on a phone
    packed.rename(binding.library.parent / native.LIBRARY)
    library = tmp_path / "sums.so"
    export_library(library)
    with (
        tvm_process("rpc_proxy") as (host, port),
        java_server(tmp_path / "java", tmp_path, "proxy", host, port) as server,
    ):
        for number in (1, 2):
            server.wait_for("LISTENING")
            remote = tvm.rpc.connect(host, port, "pixel")
            use(remote, library)
            assert remote.get_function("codl.create_library") is not None
            assert remote.load_module(library.name)["bind_threads"]() == 0
            del remote
            server.wait_for(f"{number} served")
