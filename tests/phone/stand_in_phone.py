"""A stand-in for a phone, for tests: a folder of this machine, with this machine's ``sh`` or Android's as its shell.

What it cannot show is Android: its linker, its SELinux.  ``getprop``, ``dumpsys``, ``pm``, ``settings`` and ``getenforce`` are small
scripts that tell what a test has put into the phone's files.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from tests.phone.pipes import Pipes

TABLE = """#!/bin/sh
# A stand-in: tells what the test has put into the phone's files.
"""
PROGRAMS = {
    "getprop": '[ -f "$PHONE_FILES/prop.$1" ] && cat "$PHONE_FILES/prop.$1" || true',
    "getenforce": 'cat "$PHONE_FILES/getenforce"',
    "settings": 'cat "$PHONE_FILES/settings.$3"',
    "dumpsys": 'cat "$PHONE_FILES/dumpsys.$1" 2>/dev/null || true',
    "pm": """
[ "$1" = install ] && [ "$2" = -r ] && [ -f "$3" ] || { echo "Failure [INSTALL_FAILED_INVALID_APK: $*]"; exit 1; }
[ ! -f "$PHONE_FILES/pm.refuses" ] || { cat "$PHONE_FILES/pm.refuses"; exit 1; }
cp "$3" "$PHONE_FILES/installed.apk"
printf '    versionCode=7 minSdk=24 targetSdk=34\\n    versionName=1.2\\n' >"$PHONE_FILES/dumpsys.package"
echo Success""",
}


class Phone:
    """A phone with files; ``folder`` stands for its storage, ``files`` for what Android's own programs tell."""

    def __init__(
        self, folder: Path, serial: str = "R58M123ABC", state: str = "device", model: str = "Stand_in"
    ) -> None:
        self.serial, self.state, self.model = serial, state, model
        self.folder, self.files, self.programs = folder / "tmp", folder / "files", folder / "bin"
        for path in (self.folder, self.files, self.programs):
            path.mkdir(parents=True)
        for name, script in PROGRAMS.items():
            (self.programs / name).write_text(TABLE + script + "\n")
            (self.programs / name).chmod(0o755)
        self.tell("prop.ro.product.manufacturer", "Example")
        self.tell("prop.ro.product.model", "Stand-in 1")
        self.tell("prop.ro.product.cpu.abilist", "arm64-v8a,armeabi-v7a")
        self.tell("prop.ro.soc.model", "EX100")
        self.tell("getenforce", "Enforcing")
        self.tell("settings.low_power", "0")
        self.tell("dumpsys.battery", "  level: 80\n  temperature: 287")
        self.tell("dumpsys.SurfaceFlinger", "GLES: Qualcomm, Adreno (TM) 640, OpenGL ES 3.2 V@415.0")
        self.environment: dict[str, str] = {}
        self.interpreter = "sh"
        self.commands: list[str] = []
        self.sent: list[str] = []
        self.forwards: dict[str, tuple[str, Pipes]] = {}
        self.reverses: dict[str, tuple[str, Pipes]] = {}

    def use_androids_own(self, mksh: str, toybox: str) -> None:
        """Android's shell and its tools, in place of this machine's."""
        self.interpreter = mksh
        (self.programs / "sh").symlink_to(mksh)
        for name in subprocess.run([toybox], capture_output=True, text=True, check=True).stdout.split():
            with contextlib.suppress(FileExistsError):
                (self.programs / name).symlink_to(toybox)

    def tell(self, name: str, text: str) -> None:
        (self.files / name).write_text(text + "\n" if text else "")

    def unplug(self) -> None:
        """As pulling the cable: the state, and all that adb had set up."""
        self.state = "offline"
        for mappings in (self.forwards, self.reverses):
            for _, pipes in mappings.values():
                pipes.close()
            mappings.clear()

    def shell(self, command: str) -> subprocess.Popen[bytes]:
        self.commands.append(command)
        path = f"{self.programs}:{os.environ['PATH']}"
        environment = {**os.environ, **self.environment, "PATH": path, "PHONE_FILES": str(self.files)}
        return subprocess.Popen(
            [self.interpreter, "-c", command], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
