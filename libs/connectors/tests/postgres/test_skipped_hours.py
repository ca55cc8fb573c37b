"""Tests of local times that the zone's clock skips: they
are read with the server's meaning, and none is left out.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from herdmesh.connectors.postgres.source.skipped_hours import SkippedHours
from herdmesh.connectors.postgres.types import EPOCH_US, MINUS_INFINITY_US
from libs.connectors.tests.postgres.reading import Reader, config_of
from libs.connectors.tests.postgres.sink_driver import ask

LOCAL = ["2024-03-31 01:59:59", "2024-03-31 02:00", "2024-03-31 02:45", "2024-03-31 03:00", "2024-03-31 03:30",
         "2024-03-31 04:00", "2024-10-27 02:30", "2024-10-27 03:00"]  # fmt: skip
MOMENTS = ["00:59:59", "01:00:00", "01:45:00", "01:00:00", "01:30:00", "02:00:00", "01:30:00", "02:00:00"]


def us(text: str) -> int:
    """Return microseconds since 2000, the server's form of moments."""
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000 - EPOCH_US


@pytest.mark.parametrize(
    ("zone", "one", "other", "expected"),
    [
        ("Europe/Berlin", "2024-03-31 01:00", "2024-03-31 01:59:59", True),
        ("Europe/Berlin", "2024-03-31 01:00", "2024-03-31 02:00", False),
        ("Europe/Berlin", "2024-03-31 00:59:59", "2024-03-31 01:00", False),
        ("Europe/Berlin", "2024-10-27 00:30", "2024-10-27 01:30", False),
        ("Australia/Lord_Howe", "2024-10-05 15:30", "2024-10-05 15:59", True),
        ("Australia/Lord_Howe", "2024-10-05 15:30", "2024-10-05 16:00", False),
        ("Pacific/Apia", "2011-12-30 10:00", "2011-12-31 09:59", True),
        ("Asia/Tokyo", "2024-03-31 01:00", "2024-03-31 01:00", False),
        ("UTC", "2024-03-31 01:00", "2024-03-31 01:00", False),
        ("Nowhere/None", "2024-03-31 01:00", "2024-03-31 01:00", False),
    ],
)
def test_moments_of_one_skipped_hour(zone: str, one: str, other: str, expected: bool) -> None:
    assert SkippedHours(zone).have_both(us(one), us(other)) is expected


def test_infinity_and_null_are_in_no_skipped_hour() -> None:
    assert not SkippedHours("Europe/Berlin").have_both(MINUS_INFINITY_US, MINUS_INFINITY_US)
    assert not SkippedHours("Europe/Berlin").have_both(None, None)


@pytest.mark.parametrize("rows_max", [1, 3, 100])
@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_every_row_is_read_once_wherever_a_run_ends(tmp_database: str, mode: str, rows_max: int) -> None:
    ask(tmp_database, "CREATE TABLE t (id int PRIMARY KEY, at timestamp NOT NULL)")
    rows = ", ".join(f"({number}, '{text}')" for number, text in enumerate(LOCAL))
    ask(tmp_database, f"INSERT INTO t VALUES {rows}")
    reader = Reader(config_of(
        tmp_database, mode=mode, timestamp__column__name="at", incrementing__column__name="id", table__whitelist="t",
        db__timezone="Europe/Berlin", batch__max__rows=str(rows_max),
    ))  # fmt: skip
    found: list[dict[str, int]] = []
    while more := reader.rows(batches_max=1):
        found += more
    assert [row["id"] for row in found] == list(range(len(LOCAL)))
    assert [f"{datetime.fromtimestamp(row['at'] / 1_000, UTC):%H:%M:%S}" for row in found] == MOMENTS
