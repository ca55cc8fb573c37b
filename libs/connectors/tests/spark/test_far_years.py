"""Tests of days outside of the years 1 to 9999, which database
drivers write as other days: refused with their record.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from herdmesh.connect.errors import DataError
from herdmesh.connect.model.data import JavaDate, Struct
from herdmesh.connect.model.schemas import Schema, date_schema, timestamp_schema
from herdmesh.connectors.spark.sink.settings import settings_of
from herdmesh.connectors.spark.sink.tables import format_for_spark, refuse_far_years

DAY_MS = 86_400_000
SCHEMA = Schema("STRUCT", fields=(("day", date_schema(optional=True)), ("at", timestamp_schema(optional=True))))


def packed(*rows: list[Any]) -> Any:
    return format_for_spark(defaults=True).pack([Struct(SCHEMA, row) for row in rows], SCHEMA)


def test_days_that_every_driver_writes_are_accepted() -> None:
    first, last = -719_162 * DAY_MS, 2_932_896 * DAY_MS
    refuse_far_years(
        packed([JavaDate(first), JavaDate(last + DAY_MS - 1)], [None, None], [JavaDate(last), JavaDate(first)])
    )
    refuse_far_years(packed([None, None]))
    refuse_far_years(format_for_spark(defaults=True).pack([{"day": "0044-03-15 BC", "n": 1 << 60}], None))


@pytest.mark.parametrize("at", [-719_163 * DAY_MS, 2_932_897 * DAY_MS])
@pytest.mark.parametrize("field", ["day", "at"])
def test_other_days_are_refused_with_the_field(field: str, at: int) -> None:
    rows = [
        [JavaDate(0), JavaDate(0)],
        [JavaDate(at) if field == "day" else None, JavaDate(at) if field == "at" else None],
    ]
    with pytest.raises(DataError, match=f"field {field} has a day outside of the years 1 to 9999"):
        refuse_far_years(packed(*rows))


@pytest.mark.parametrize(
    ("url", "refuses"),
    [("jdbc:derby:/d", True), ("jdbc:mysql://h/d", True), ("jdbc:postgresql://h/d", False), ("jdbc:sqlite:/d", False)],
)
def test_drivers_that_write_all_years_are_known(tmp_path: Path, url: str, refuses: bool) -> None:
    config = {"spark.format": "jdbc", "spark.option.url": url, "spark.option.dbtable": "t"}
    assert settings_of({**config, "staging.directory": str(tmp_path)}).refuses_far_years is refuses
    assert not settings_of({"spark.format": "parquet", "spark.option.path": "/out",
                            "staging.directory": str(tmp_path)}).refuses_far_years  # fmt: skip
