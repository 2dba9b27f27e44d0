"""Files and stores: what goes out comes in, once, and a bad line is named."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tvm import autotvm

from tests.examples import examples
from tests.records.test_autotvm import OLD, TOPHUB
from tests.unit.records import strategies
from tests.unit.records.strategies import KEYS
from tests.unit.records.test_store import kernel, record
from tvm_codl.errors import UserError
from tvm_codl.records.exchange import Amount, Format, export_file, format_of, import_file, merge, open_store
from tvm_codl.records.kernel import KernelRecord
from tvm_codl.records.record import Record
from tvm_codl.records.selection import Selection, groups
from tvm_codl.records.store import RecordStore

PROFILE = '{"clusters":[{"cores":[0,1]}],"name":"phone"}'


def fill(path: Path) -> tuple[list[Record], list[KernelRecord]]:
    with RecordStore(path) as store:
        digest = store.keep_profile(PROFILE)
        made = [record(KEYS[0], profile=digest), record(KEYS[1], processor="cpu", mode="shared")]
        made.append(record(KEYS[2], times_ms=(), error='=broken, "badly"\nvery', error_no=7, schedule='{"rows": 2}'))
        tried = [kernel(profile=digest), kernel(costs=(), error_no=4), kernel(target="opencl")]
        store.add(made)
        store.add(tried)
    return made, tried


def read(path: Path) -> tuple[list[Record], list[KernelRecord], list[str]]:
    with RecordStore(path) as store:
        return list(store), list(store.kernels()), list(store.profiles().values())


def test_a_store_goes_through_autotvms_format_whole_and_once(tmp_path: Path) -> None:
    made, tried = fill(tmp_path / "a.db")
    with open_store(tmp_path / "a.db") as store:
        assert export_file(store, tmp_path / "out.log") == Amount(3, 3, 1)
    assert len(list(autotvm.record.load_from_file(tmp_path / "out.log"))) == 6
    with RecordStore(tmp_path / "b.db") as store:
        first, second = (import_file(store, tmp_path / "out.log") for _ in range(2))
    assert (first.read, first.new) == (Amount(3, 3, 1), Amount(3, 3, 1))
    assert (second.read, second.new, second.bad) == (Amount(3, 3, 1), Amount(), 0)
    assert read(tmp_path / "b.db") == (made, tried, [PROFILE])


def test_pieces_go_through_csv_whole_and_once(tmp_path: Path) -> None:
    made, _ = fill(tmp_path / "a.db")
    with open_store(tmp_path / "a.db") as store:
        assert export_file(store, tmp_path / "out.csv") == Amount(pieces=3)
    with RecordStore(tmp_path / "b.db") as store:
        assert [import_file(store, tmp_path / "out.csv").new for _ in range(2)] == [Amount(pieces=3), Amount()]
    assert read(tmp_path / "b.db") == (made, [], [])
    (tmp_path / "excel.csv").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "out.csv").read_bytes())
    with RecordStore(tmp_path / "b.db") as store:
        assert import_file(store, tmp_path / "excel.csv").new == Amount(), "a byte order mark is no part of a name"


@settings(max_examples=examples(8))
@given(made=st.lists(strategies.records, max_size=4), tried=st.lists(strategies.kernels, max_size=3))
def test_any_records_go_through_both_formats(
    made: list[Record], tried: list[KernelRecord], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    once = list(dict.fromkeys(made)), list(dict.fromkeys(tried))
    with RecordStore(folder / "a.db") as store:
        store.add(once[0])
        store.add(once[1])
        for format in ("autotvm", "csv"):
            export_file(store, folder / format, format)
    for format in ("autotvm", "csv"):
        with RecordStore(folder / f"{format}.db") as store:
            import_file(store, folder / format, format)
        assert read(folder / f"{format}.db")[:2] == (once[0], once[1] if format == "autotvm" else [])


def test_a_package_of_several_targets_and_versions_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mixed.log").write_text("# from a hub\n" + "\n".join([*TOPHUB, "", OLD]) + "\n")
    with RecordStore(tmp_path / "a.db") as store:
        assert import_file(store, tmp_path / "mixed.log").new == Amount(kernels=4)
        export_file(store, tmp_path / "out.log")
        found = groups(store)
    assert len(list(autotvm.record.load_from_file(tmp_path / "out.log"))) == 4
    assert [(g.what, g.processor, g.kind, g.count, g.failed) for g in found] == [
        ("kernel", "cpu", "dense_nopack.x86", 1, 0),
        ("kernel", "cpu", "topi_nn_conv2d", 1, 0),
        ("kernel", "gpu", "conv2d_nchw.cuda", 1, 1),
        ("kernel", "gpu", "conv2d_nchw_spatial_pack.mali", 1, 0),
    ]


@pytest.mark.parametrize("format", ["autotvm", "csv"])
def test_a_bad_line_stops_the_import_or_is_skipped_and_reported(tmp_path: Path, format: Format) -> None:
    fill(tmp_path / "a.db")
    path = tmp_path / f"mine.{format}"
    with open_store(tmp_path / "a.db") as store:
        store.add([record("no key of an operator")])
        export_file(store, path, format, Selection(mode="alone"))
    with open(path, "a") as file:
        file.write("nonsense\n")
    lines = path.read_text().count("\n")
    with RecordStore(tmp_path / "b.db") as store:
        with pytest.raises(UserError, match=rf"mine\.{format}:\d+ is no record") as raised:
            import_file(store, path, format)
        assert "--skip-bad" in raised.value.next
        assert len(store) == 0 and list(store.kernels()) == [] and store.profiles() == {}
        found = import_file(store, path, format, skip_bad=True)
        assert (found.new.pieces, found.bad, len(store)) == (2, 2, 2)
    assert "workload" in found.reasons[0] and found.reasons[1].startswith(f"{path}:{lines}: ")


@pytest.mark.parametrize("name", ["none.log", "none.csv", "binary.log", "empty.csv"])
def test_a_file_that_cannot_be_read_is_a_kind_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "binary.log").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.csv").touch()
    with RecordStore(tmp_path / "a.db") as store, pytest.raises(UserError, match=name) as raised:
        import_file(store, tmp_path / name)
    assert ("tvm-codl records export --format csv" if name == "empty.csv" else "records merge") in raised.value.next


def test_an_export_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    fill(tmp_path / "a.db")
    with open_store(tmp_path / "a.db") as store, pytest.raises(UserError, match="cannot be written") as raised:
        export_file(store, tmp_path / "none" / "out.log")
    assert "tvm-codl records export -o FILE" in raised.value.next
    (tmp_path / "taken").mkdir()
    with open_store(tmp_path / "a.db") as store, pytest.raises(UserError, match="cannot be written"):
        export_file(store, tmp_path / "taken")
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_stores_are_merged_once(tmp_path: Path) -> None:
    made, tried = fill(tmp_path / "a.db")
    fill(tmp_path / "b.db")
    with RecordStore(tmp_path / "b.db") as store:
        store.add([record(KEYS[3])])
    sources = [tmp_path / "a.db", tmp_path / "b.db"]
    with RecordStore(tmp_path / "all.db") as store:
        assert merge(sources, store) == Amount(4, 3, 1)
        assert merge([*sources, tmp_path / "all.db"], store) == Amount()
    assert read(tmp_path / "all.db") == ([*made, record(KEYS[3])], tried, [PROFILE])
    with RecordStore(tmp_path / "all.db") as store, pytest.raises(UserError, match=r"none\.db"):
        merge([tmp_path / "none.db"], store)
    assert not (tmp_path / "none.db").exists()


def test_a_selection_chooses_and_groups_count(tmp_path: Path) -> None:
    fill(tmp_path / "a.db")
    with open_store(tmp_path / "a.db") as store:
        store.add([record(KEYS[0], build="b2", when=1800000000.0)])
        every = groups(store)
        assert [(g.what, g.processor, g.count, g.failed, g.builds) for g in every] == [
            ("piece", "cpu", 1, 0, 1),
            ("piece", "gpu", 3, 1, 2),
            ("kernel", "cpu", 2, 1, 1),
            ("kernel", "gpu", 1, 0, 1),
        ]
        assert every[1].newest == 1800000000.0
        chosen = {
            Selection(processor="cpu"): ["piece", "kernel"],
            Selection(kind="conv2d"): ["piece", "piece"],
            Selection(mode="shared"): ["piece"],
            Selection(device="nobody"): [],
        }
        for selection, found in chosen.items():
            assert [g.what for g in groups(store, selection)] == found
        assert export_file(store, tmp_path / "gpu.log", selection=Selection(processor="gpu")) == Amount(3, 1, 1)


def test_the_format_is_told_by_the_files_ending() -> None:
    assert [format_of(path) for path in (Path("a.csv"), Path("a.CSV"), Path("a.log"), None)] == [
        *("csv", "csv", "autotvm", "autotvm"),
    ]


def test_what_is_equal_but_for_its_profile_is_another_record(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "a.db") as store:
        assert store.add_new([record(), replace(record(), profile="0" * 16)]) == 2


def test_a_pipe_is_written_into_and_stays_one(tmp_path: Path) -> None:
    fill(tmp_path / "a.db")
    pipe, copy = tmp_path / "pipe", tmp_path / "copy.log"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader, open_store(tmp_path / "a.db") as store:
        export_file(store, pipe)
        export_file(store, copy)
        assert reader.stdout is not None and reader.stdout.read() == copy.read_bytes()
    assert pipe.is_fifo()
