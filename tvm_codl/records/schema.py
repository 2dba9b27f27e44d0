"""The tables of a record store: the steps from each schema version to the next."""

from __future__ import annotations


def _append_only(table: str) -> tuple[str, str]:
    return (
        f"CREATE TRIGGER {table}_kept BEFORE DELETE ON {table} BEGIN SELECT RAISE(ABORT, 'append-only'); END",
        f"CREATE TRIGGER {table}_fixed BEFORE UPDATE ON {table} BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    )


_FIRST = (
    """CREATE TABLE record (
        id INTEGER PRIMARY KEY,
        workload TEXT NOT NULL, kind TEXT NOT NULL, axis TEXT NOT NULL,
        lo INTEGER NOT NULL, hi INTEGER NOT NULL, extent INTEGER NOT NULL,
        processor TEXT NOT NULL, device TEXT NOT NULL, build TEXT NOT NULL, mode TEXT NOT NULL,
        times_ms TEXT NOT NULL, error TEXT NOT NULL, time REAL NOT NULL
    ) STRICT""",
    "CREATE INDEX record_by_workload ON record (device, processor, workload)",
    *_append_only("record"),
)

#: New columns have defaults: a process of the older version that has the file open can go on appending.
_SECOND = (
    "ALTER TABLE record ADD COLUMN error_no INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE record ADD COLUMN profile TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE record ADD COLUMN schedule TEXT NOT NULL DEFAULT ''",
    "DROP TRIGGER record_fixed",
    # The first version had no numbers: 8 is AutoTVM's for an error of unknown sort.
    "UPDATE record SET error_no=8 WHERE error != '' OR times_ms = '[]'",
    _append_only("record")[1],
    # Two columns: with one, SQLite may prefer it to record_by_workload when the workload is given too.
    "CREATE INDEX record_by_build ON record (build, device)",
    "CREATE TABLE profile (digest TEXT NOT NULL PRIMARY KEY, json TEXT NOT NULL) STRICT",
    *_append_only("profile"),
    """CREATE TABLE kernel (
        id INTEGER PRIMARY KEY,
        target TEXT NOT NULL, task TEXT NOT NULL, args TEXT NOT NULL, config TEXT NOT NULL,
        costs TEXT NOT NULL, error_no INTEGER NOT NULL, all_cost REAL NOT NULL, time REAL NOT NULL,
        device TEXT NOT NULL, profile TEXT NOT NULL, tvm_version TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX kernel_by_task ON kernel (task, target, device, time)",
    "CREATE INDEX kernel_by_device ON kernel (device)",
    *_append_only("kernel"),
)

_THIRD = (
    """CREATE TABLE plan (
        id INTEGER PRIMARY KEY,
        model TEXT NOT NULL, device TEXT NOT NULL, build TEXT NOT NULL, graph TEXT NOT NULL,
        placements TEXT NOT NULL, settings TEXT NOT NULL,
        predicted_ms REAL NOT NULL, times_ms TEXT NOT NULL, time REAL NOT NULL
    ) STRICT""",
    "CREATE INDEX plan_by_device ON plan (device, build, graph)",
    *_append_only("plan"),
)

_FOURTH = ("ALTER TABLE plan ADD COLUMN disturbed INTEGER NOT NULL DEFAULT 0",)

#: ``STEPS[n]`` makes version n + 1 from version n; version 0 is an empty file.
STEPS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND, _THIRD, _FOURTH)
SCHEMA_VERSION = len(STEPS)
