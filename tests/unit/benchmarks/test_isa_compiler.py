from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.isa_compiler import Compiler, Judged, Kernel, weighted
from tvm_codl.errors import UserError, WorkplaceError

KERNEL = Kernel("k", "__kernel void some_name(__global float* restrict x) {}", 100, (16, 4, 1), 640)
SAYS = """#!/bin/bash
echo "$2" >> {folder}/asked
cp "$1" {folder}/source.cl
echo '{{"spills": 9, "fills": 9, "occupancy": 1.0, "hot_loop": {{"instructions": 9, "fma": 1, "loads": {{}}, "bound": "t"}}}}'
echo '{{"spills": 1, "fills": 2, "occupancy": 0.5,
 "hot_loop": {{"instructions": 200, "fma": 128, "loads": {{"LOAD.i128": 12}}, "bound": "ls"}}}}' | tr -d '\\n'
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TVM_CODL_CACHE", str(tmp_path / "cache"))
    script = tmp_path / "stats.sh"
    script.write_text(SAYS.format(folder=tmp_path))
    script.chmod(0o755)
    return tmp_path


def test_the_last_line_counts_and_is_kept(folder: Path) -> None:
    compiler = Compiler(folder)
    wanted = Judged("k", 100, 3, 0.5, 0.64, 12.0, "ls", (16, 4, 1))
    assert compiler.judge(KERNEL, "mali-g78") == wanted
    assert compiler.judge(KERNEL, "mali-g78") == wanted
    assert (folder / "asked").read_text().split() == ["mali-g78"]
    compiler.judge(KERNEL, "adreno-640")
    assert (folder / "asked").read_text().split() == ["mali-g78", "adreno-640"]
    assert "reqd_work_group_size(16, 4, 1)" in (folder / "source.cl").read_text()


def test_a_folder_without_the_compiler_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        Compiler(tmp_path)
    assert "isa.sh" in caught.value.next


def test_a_kernel_that_does_not_compile_is_no_figure(folder: Path) -> None:
    (folder / "stats.sh").write_text("#!/bin/bash\necho broken >&2\nexit 1\n")
    with pytest.raises(WorkplaceError) as caught:
        Compiler(folder).judge(KERNEL, "mali-g78")
    assert "broken" in caught.value.evidence


def test_averages_are_by_flops() -> None:
    heavy = Judged("a", 300, 0, 1.0, 0.6, 12.0, "ls", (64, 1, 1))
    light = Judged("b", 100, 2, 0.5, 0.2, 24.0, "fma", (1, 1, 1))
    none = Judged("c", 0, 0, 1.0, None, None, "ls", (64, 1, 1))
    assert weighted([heavy, light, none], [True, False, True]) == {
        "spills": 2,
        "occupancy": 0.875,
        "fma_share": 0.5,
        "loads_per_128_fma": 15.0,
        "bound": {"fma": 0.25, "ls": 0.75},
        "group": 0.667,
    }
