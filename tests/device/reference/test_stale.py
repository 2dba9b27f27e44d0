from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tvm_codl.device.reference.server import remove_stale


def test_only_folders_of_dead_owners_are_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in (f"tvm-codl-{dead.pid}-a", f"tvm-codl-{os.getpid()}-b", "tvm-codl-doctor-c", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / f"tvm-codl-{dead.pid}-link").symlink_to("/nonexistent")  # anybody may make one in a shared folder
    remove_stale(tmp_path)
    (tmp_path / f"tvm-codl-{dead.pid}-link").unlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", f"tvm-codl-{os.getpid()}-b", "tvm-codl-doctor-c"]
