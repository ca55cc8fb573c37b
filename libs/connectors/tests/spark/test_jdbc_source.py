"""Tests of `SparkJdbcSource` with a real Spark: each mode, resume, types, and errors of databases.

With SQLite, and for types and clocks with Derby, which comes with Spark and runs in its JVM.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from herdmesh.connect.errors import ConfigError, ConnectError, RetriableError
from herdmesh.connect.spi.connector import SourceBatch, SourceTaskContext
from herdmesh.connectors.spark.jdbc_source import sweep
from herdmesh.connectors.spark.jdbc_source.connector import JdbcSource
from herdmesh.connectors.spark.jdbc_source.database import Columns, JdbcColumn
from herdmesh.connectors.spark.jdbc_source.plan import JdbcPlan, relation_of
from herdmesh.connectors.spark.jdbc_source.settings import settings_of
from herdmesh.connectors.spark.jdbc_source.task import JdbcSourceTask
from herdmesh.connectors.table_source import TablePlace
from herdmesh.sdk.spark import task_session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400), pytest.mark.usefixtures("spark")]

_numbers = itertools.count()
Offsets = dict[str, Mapping[str, Any] | None]


class Reader:
    """A connector's tasks, run in this process one after the other; offsets are committed batch by batch."""

    def __init__(self, **config: str) -> None:
        self.config: dict[str, str | None] = {
            "topic.prefix": "t-", "poll.interval.ms": "1", **{k.replace("_", "."): v for k, v in config.items()},
        }  # fmt: skip
        self.offsets: Offsets = {}
        self.batches: list[SourceBatch] = []

    def run(self, tasks_max: int = 1, polls_max: int = 1_000) -> list[dict[str, Any]]:
        """Return the rows of one run of each task, until there are no more."""
        self.batches = []
        connector = JdbcSource()
        connector.start(self.config)
        for number, config in enumerate(connector.task_configs(tasks_max)):
            task = JdbcSourceTask()
            try:
                task.start(config, SourceTaskContext("c", number, 1, "run", self._committed))
                for _ in range(polls_max):
                    batch = task.poll()
                    if batch is None:
                        break
                    self.offsets[str(batch.source_partition)] = batch.source_offset
                    self.batches.append(batch)
            finally:
                task.stop()
        return [as_dict(value) for batch in self.batches for value in batch.values]

    def _committed(self, partition: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return self.offsets.get(str(partition))


def as_dict(struct: Any) -> dict[str, Any]:
    """Return a Struct's fields by name."""
    return {field.name: value for field, value in zip(struct.schema.fields, struct.values, strict=True)}


def ids(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def lite(folder: Path, *statements: str) -> str:
    """Run statements in a database; return its URL."""
    with closing(sqlite3.connect(folder / "shop.db")) as database, database:
        for statement in statements:
            database.execute(statement)
    return f"jdbc:sqlite:{folder / 'shop.db'}?date_class=TEXT"


def orders(folder: Path, numbers: range, table: str = "orders") -> str:
    """Add rows to a table, which is created if it is missing; return the URL."""
    rows = ", ".join(f"({number}, 'n{number}')" for number in numbers)
    made = f"CREATE TABLE IF NOT EXISTS {table} (id INT NOT NULL, name TEXT)"
    return lite(folder, made, f"INSERT INTO {table} VALUES {rows}")


def changed(folder: Path, *rows: tuple[int, str]) -> str:
    """Add rows with the second of a day at which they were changed; return the URL."""
    made = "CREATE TABLE IF NOT EXISTS changes (id INT NOT NULL, at TIMESTAMP NOT NULL)"
    written = ", ".join(f"({number}, '2024-01-02 03:04:{second}')" for number, second in rows)
    return lite(folder, made, f"INSERT INTO changes VALUES {written}")


def test_numbers_are_read_in_order_and_continue_after_the_last(tmp_path: Path) -> None:
    reader = Reader(connection_url=orders(tmp_path, range(25, 0, -1)), mode="incrementing",
                    incrementing_column_name="ID", table_whitelist="orders", batch_max_rows="10")  # fmt: skip
    rows = reader.run()
    assert ids(rows) == list(range(1, 26))
    assert rows[0] == {"id": 1, "name": "n1"}
    first = reader.batches[0]
    assert first.topic == "t-orders"
    assert first.source_partition == {"protocol": "1", "table": "orders"}
    assert list(first.keys) == []
    assert first.value_schema is not None
    assert first.value_schema.name == "orders"
    assert reader.offsets == {str(first.source_partition): {"incrementing": 25}}
    assert [len(one) for one in reader.batches] == [9, 10, 6]  # more rows like the last of ten may follow
    orders(tmp_path, range(26, 28))
    assert ids(reader.run()) == [26, 27]
    assert reader.run() == []


def test_tables_are_divided_among_tasks_and_equal_numbers_stay_in_one_batch(tmp_path: Path) -> None:
    orders(tmp_path, range(3), "a")
    orders(tmp_path, range(3, 5), "b")
    url = orders(tmp_path, range(5, 7), "c")
    lite(tmp_path, "INSERT INTO c SELECT * FROM c")
    reader = Reader(connection_url=url, mode="incrementing", incrementing_column_name="id", table_whitelist="a,b,c",
                    batch_max_rows="1")  # fmt: skip
    assert ids(reader.run(tasks_max=2)) == [0, 1, 2, 3, 4, 5, 5, 6, 6]
    assert {one.topic for one in reader.batches} == {"t-a", "t-b", "t-c"}
    assert [len(one) for one in reader.batches if one.topic == "t-c"] == [2, 2]
    assert reader.run(tasks_max=3) == []


def test_rows_of_one_moment_stay_in_one_batch_before_later_ones(tmp_path: Path) -> None:
    url = changed(tmp_path, (1, "05.000"), (2, "06.123"), (3, "06.123"), (4, "06.123"),
                  (5, "07.000"), (6, "07.000"))  # fmt: skip
    reader = Reader(connection_url=url, mode="timestamp", timestamp_column_name="at", table_whitelist="changes",
                    batch_max_rows="2")  # fmt: skip
    assert ids(reader.run(polls_max=2)) == [1, 2, 3, 4]
    assert list(reader.offsets.values()) == [{"timestamp": 1_704_164_646_123, "timestamp_nanos": 123_000_000}]
    assert ids(reader.run()) == [5, 6]
    lite(tmp_path, "UPDATE changes SET at = '2024-01-02 03:04:08.001' WHERE id = 2")
    assert ids(reader.run()) == [2]
    lite(tmp_path, "INSERT INTO changes VALUES (9, '2999-01-01 00:00:00.000')")
    assert reader.run() == []


def test_a_number_distinguishes_rows_of_one_moment(tmp_path: Path) -> None:
    url = changed(tmp_path, (2, "06.123"), (1, "06.123"))
    reader = Reader(connection_url=url, mode="timestamp+incrementing", timestamp_column_name="at",
                    incrementing_column_name="id", table_whitelist="changes")  # fmt: skip
    assert ids(reader.run()) == [1, 2]
    moment = {"timestamp": 1_704_164_646_123, "timestamp_nanos": 123_000_000}
    assert list(reader.offsets.values()) == [{"incrementing": 2, **moment}]
    changed(tmp_path, (3, "06.123"), (0, "07.000"))
    assert ids(reader.run()) == [3, 0]
    assert reader.run() == []


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_more_rows_of_one_moment_than_memory_may_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """With numbers each batch has a place of its own; without them all but the last carry the earlier place."""
    monkeypatch.setattr(sweep, "TIES_MAX", 4)
    url = changed(tmp_path, *((number, "06.123") for number in range(7)))
    reader = Reader(connection_url=url, mode=mode, timestamp_column_name="at", incrementing_column_name="id",
                    table_whitelist="changes", batch_max_rows="2")  # fmt: skip
    assert ids(reader.run(polls_max=1)) == [0, 1, 2]
    (offset,) = reader.offsets.values()
    rest = ids(reader.run())
    if mode == "timestamp":
        assert (offset, rest) == (None, list(range(7)))
    else:
        assert offset is not None
        assert (offset["incrementing"], rest) == (2, [3, 4, 5, 6])
    assert reader.run() == []


def test_a_query_with_all_its_clauses_is_read(tmp_path: Path) -> None:
    orders(tmp_path, range(9))
    reader = Reader(
        connection_url=orders(tmp_path, range(3), "more"), mode="incrementing", incrementing_column_name="id",
        query="SELECT o.id, m.name AS other FROM orders o LEFT JOIN more m ON m.id = o.id WHERE o.id > 1 -- all;",
    )  # fmt: skip
    assert reader.run()[:2] == [{"id": 2, "other": "n2"}, {"id": 3, "other": None}]
    assert reader.batches[0].topic == "t-"
    assert reader.batches[0].source_partition == {"query": "query"}
    assert reader.run() == []


def test_bulk_reads_all_rows_each_time_and_does_not_yield(tmp_path: Path) -> None:
    reader = Reader(connection_url=orders(tmp_path, range(5)), mode="bulk", table_whitelist="orders",
                    batch_max_rows="2", poll_interval_ms="60000")  # fmt: skip
    for _ in range(2):
        assert sorted(ids(reader.run())) == list(range(5))
        assert {str(one.source_offset) for one in reader.batches} == {"None"}
    task = JdbcSourceTask()
    connector = JdbcSource()
    connector.start(reader.config)
    task.start(connector.task_configs(1)[0], SourceTaskContext("c", 0, 1, "run", lambda _: None))
    assert not task.may_yield()
    assert task.poll() is not None
    assert not task.may_yield()
    while task.poll() is not None:
        pass
    assert task.may_yield()
    assert 30_000 < task.wake_after_ms() <= 60_000
    task.stop()


def test_reading_begins_at_the_configured_moment(tmp_path: Path) -> None:
    url = changed(tmp_path, (1, "05.000"), (2, "06.000"))
    where = {"mode": "timestamp", "timestamp_column_name": "at", "table_whitelist": "changes"}
    assert ids(Reader(connection_url=url, timestamp_initial="1704164645000", **where).run()) == [2]
    reader = Reader(connection_url=url, timestamp_initial="-1", **where)
    assert reader.run() == []
    (offset,) = reader.offsets.values()
    assert offset is not None
    assert offset["timestamp"] > 1_704_164_646_000


@pytest.mark.parametrize(
    ("table", "more", "field", "says"),
    [
        ("absent", {}, "table.whitelist", "no such table"),
        ("orders", {"incrementing_column_name": "number"}, "incrementing.column.name", "it has id, name"),
        ("orders", {"incrementing_column_name": "name"}, "incrementing.column.name", "not a whole number"),
        ("loose", {}, "incrementing.column.name", "may be null"),
    ],
)
def test_unreadable_tables_and_columns_are_reported(
    tmp_path: Path, table: str, more: dict[str, str], field: str, says: str
) -> None:
    orders(tmp_path, range(2))
    url = lite(tmp_path, "CREATE TABLE loose (id INT)")
    config = {"connection_url": url, "mode": "incrementing", "incrementing_column_name": "id", "table_whitelist": table}
    with pytest.raises(ConfigError, match=says) as raised:
        Reader(**{**config, **more}).run()
    assert raised.value.field == field


def test_a_value_that_cannot_be_read_ends_the_task(tmp_path: Path) -> None:
    """Retrying would give a task that runs and produces no records."""
    reader = Reader(connection_url=lite(tmp_path, "CREATE TABLE odd (at TIMESTAMP)", "INSERT INTO odd VALUES ('soon')"),
                    mode="bulk", table_whitelist="odd")  # fmt: skip
    with pytest.raises(ConnectError, match=r'cannot read odd: .*"soon"') as raised:
        reader.run()
    assert not isinstance(raised.value, RetriableError)


def test_rows_read_in_another_order_than_the_databases_are_not_skipped(tmp_path: Path) -> None:
    """Spark reads an INTEGER of SQLite as 32 bits."""
    url = lite(tmp_path, "CREATE TABLE wide (id INTEGER PRIMARY KEY NOT NULL)", "INSERT INTO wide VALUES (7)")
    config = {"connection_url": url, "mode": "incrementing", "incrementing_column_name": "id"}
    reader = Reader(table_whitelist="wide", **config)
    assert ids(reader.run()) == [7]
    lite(tmp_path, f"INSERT INTO wide VALUES ({(1 << 31) + 1})")
    with pytest.raises(ConfigError, match="the database returns -2147483647 for a row that it finds after 7") as raised:
        reader.run()
    assert raised.value.field == "incrementing.column.name"
    wider = Reader(query="SELECT CAST(id AS BIGINT) AS id FROM wide", **config)
    assert ids(wider.run()) == [Decimal(7), Decimal((1 << 31) + 1)]
    settings = settings_of({**reader.config, "mode": "timestamp", "timestamp.column.name": "at"})
    columns = Columns((JdbcColumn("at", "timestamp", nullable=False, is_time=False),), None)
    plan = JdbcPlan(relation_of("wide", settings), columns, ['"at"'], settings)
    assert plan.already([(9, 0), (10, 0)], TablePlace(moment_us=9)) == 1
    with pytest.raises(ConfigError, match="returns 8 for a row"):
        plan.already([(8, 0)], TablePlace(moment_us=9))


def test_a_missing_driver_is_reported_with_the_setting_without_password() -> None:
    reader = Reader(connection_url="jdbc:mysql://127.0.0.1/shop", connection_password="hunter22", mode="bulk",
                    table_whitelist="orders")  # fmt: skip
    with pytest.raises(ConfigError) as raised:
        reader.run()
    assert raised.value.field == "connection.url"
    assert "HERDMESH_SPARK_JARS" in raised.value.fix


def quiet_derby() -> Any:
    """Give Derby in the tests' JVM no derby.log in the folder in which it is started."""
    untyped: Any = task_session.session_of(task_session.begin("512m", {}))
    jvm = untyped.sparkContext._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", "/dev/null")
    return jvm


class Derby:
    """A database in the tests' JVM, of one time zone: that of timestamps without one."""

    def __init__(self, *statements: str) -> None:
        self.name = f"memory:jdbc{next(_numbers)}"
        jvm = quiet_derby()
        zones = jvm.java.util.TimeZone
        zones.setDefault(zones.getTimeZone("UTC"))
        self.url = f"jdbc:derby:{self.name}"
        self._java = jvm.java.sql.DriverManager.getConnection(f"{self.url};create=true")
        self.run(*statements)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._java.createStatement().executeUpdate(statement)
        if not self._java.getAutoCommit():
            self._java.commit()


def test_types_match_the_postgresql_source(tmp_path: Path) -> None:
    derby = Derby(
        "CREATE TABLE kinds (id BIGINT NOT NULL, i INT, s SMALLINT, b BOOLEAN, r REAL, d DOUBLE, n NUMERIC(10, 2), "
        "v VARCHAR(9), c CLOB, x VARCHAR(3) FOR BIT DATA, da DATE, ti TIME, ts TIMESTAMP NOT NULL)",
        "INSERT INTO kinds VALUES (1, 2, 3, true, 1.5, 2.5, 1.25, 'v', 'c', X'00ff', DATE('2024-01-02'), "
        "TIME('03:04:05'), TIMESTAMP('2024-01-02 03:04:05.123456'))",
        "INSERT INTO kinds (id, ts) VALUES (2, TIMESTAMP('1969-12-31 23:59:59.9995'))",
    )
    reader = Reader(connection_url=derby.url, mode="incrementing", incrementing_column_name="id",
                    table_whitelist="kinds")  # fmt: skip
    full, empty = reader.run()
    schema = reader.batches[0].value_schema
    assert schema is not None
    prefix = "org.apache.kafka.connect.data."
    assert {one.name: (one.schema.type, (one.schema.name or "").removeprefix(prefix)) for one in schema.fields} == {
        "ID": ("INT64", ""), "I": ("INT32", ""), "S": ("INT32", ""), "B": ("BOOLEAN", ""), "R": ("FLOAT32", ""),
        "D": ("FLOAT64", ""), "N": ("BYTES", "Decimal"), "V": ("STRING", ""), "C": ("STRING", ""), "X": ("BYTES", ""),
        "DA": ("INT32", "Date"), "TI": ("INT32", "Time"), "TS": ("INT64", "Timestamp"),
    }  # fmt: skip
    assert [one.name for one in schema.fields if not one.schema.optional] == ["ID", "TS"]
    day_ms = 1_704_153_600_000
    time_ms = 11_045_000
    assert full == {
        "ID": 1, "I": 2, "S": 3, "B": True, "R": 1.5, "D": 2.5, "N": Decimal("1.25"), "V": "v", "C": "c",
        "X": b"\0\xff", "DA": day_ms, "TI": time_ms, "TS": day_ms + time_ms + 123,
    }  # fmt: skip
    assert empty == {name: {"ID": 2, "TS": -1}.get(name) for name in full}


def test_moments_finer_than_a_microsecond_arrive_once_and_completely(tmp_path: Path) -> None:
    derby = Derby("CREATE TABLE fine (id INT NOT NULL, ts TIMESTAMP NOT NULL)")

    def write(number: int, fraction: str) -> None:
        derby.run(f"INSERT INTO fine VALUES ({number}, TIMESTAMP('2024-01-02 03:04:05.{fraction}'))")

    write(1, "123456100")
    write(2, "123456900")
    write(3, "123457000")
    reader = Reader(connection_url=derby.url, mode="timestamp", timestamp_column_name="ts", table_whitelist="fine",
                    batch_max_rows="1")  # fmt: skip
    assert [row["ID"] for row in reader.run(polls_max=1)] == [1, 2]
    assert [row["ID"] for row in reader.run()] == [3]
    assert reader.run() == []
    write(4, "123457100")
    write(5, "123458")
    assert [row["ID"] for row in reader.run()] == [5]  # 4 has a microsecond that was already read


def test_the_configured_zone_applies_to_timestamps_without_one(tmp_path: Path) -> None:
    derby = Derby(
        "CREATE TABLE zoned (id INT NOT NULL, ts TIMESTAMP NOT NULL, ti TIME)",
        "INSERT INTO zoned VALUES (1, TIMESTAMP('2024-01-02 03:04:05'), TIME('03:04:05'))",
    )
    reader = Reader(connection_url=derby.url, mode="timestamp", timestamp_column_name="ts", table_whitelist="zoned",
                    db_timezone="Asia/Tokyo")  # fmt: skip
    assert reader.run() == [{"ID": 1, "TS": 1_704_164_645_000 - 9 * 3_600_000, "TI": 11_045_000}]
    assert reader.run() == []


def test_errors_of_a_database_do_not_show_the_password(tmp_path: Path) -> None:
    quiet_derby()
    reader = Reader(connection_url=f"jdbc:derby:{tmp_path}/hunter22", connection_password="hunter22", mode="bulk",
                    table_whitelist="orders")  # fmt: skip
    with pytest.raises((ConfigError, RetriableError)) as raised:
        reader.run()
    assert "***" in str(raised.value)
    assert "hunter22" not in f"{raised.value}"
    assert raised.value.__suppress_context__
