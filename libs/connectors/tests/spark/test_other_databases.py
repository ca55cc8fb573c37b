"""Tests of `SparkSink` and `SparkJdbcSource` with frequently
used databases: a MariaDB server, and H2 in the JVM.

They kill owners with kill -9 in the middle of a write, and test properties of the database: names, types, zones, and
case-insensitive comparison of texts. `test_mariadb_suite` applies the suite for authors.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connectors.spark.sink import jdbc
from herdmesh.connectors.spark.sink.settings import settings_of
from herdmesh.sdk.spark import task_session
from libs.connectors.tests.spark.databases import fresh, needs_mariadb, options
from libs.connectors.tests.spark.test_jdbc_source import Reader, ids
from libs.connectors.tests.spark.test_spark_sink import RECORDS, SPARK_S, sink
from libs.core.tests.engine.harness import Kafka, RunSpec, processes, run_here
from tests.support.mariadb import PASSWORD, USER, MariaDb
from tests.support.sizes import SOAKING

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not SOAKING, reason="a database server and its drivers (HERDMESH_SOAK=1)"),
    pytest.mark.usefixtures("spark_for_databases"),
]
POINTS = ["before-publish", "before-target-commit", "after-target-commit"]
_numbers = itertools.count()
pa: Any = pyarrow
pq: Any = pyarrow.parquet


def reader(server: MariaDb, **config: str) -> Reader:
    return Reader(connection_url=server.url, connection_user=USER, connection_password=PASSWORD, **config)


def target_of(folder: Path, **options: str) -> jdbc.JdbcTarget:
    found = {f"spark.option.{name}": value for name, value in options.items()}
    return jdbc.JdbcTarget(settings_of({"spark.format": "jdbc", "staging.directory": str(folder), **found}))


def rows_file(folder: Path, **columns: Any) -> Path:
    path = folder / f"rows-{next(_numbers)}.parquet"
    pq.write_table(pa.table(columns), path)
    return path


# --- the sink


@needs_mariadb
def test_each_record_is_written_once_wherever_an_owner_is_killed(
    kafka_bootstrap: str, server: MariaDb, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    kafka, specs = Kafka(kafka_bootstrap), dict[str, tuple[RunSpec, str]]()
    for point in POINTS:
        topic, table = kafka.create_topic(tmp_topic()), fresh("flights")
        kafka.produce_ids(topic, range(RECORDS))
        specs[point] = sink(kafka, tmp_topic("sink"), topic, tmp_path / point, "jdbc", **options(server, table)), table
    with processes(tmp_path) as start:
        for process in [start(spec, point) for point, (spec, _) in specs.items()]:
            process.until_frozen(SPARK_S)
            process.kill()
    for point, (spec, table) in specs.items():
        run_here(spec)
        found = server.run(f"SELECT id, name FROM {table} ORDER BY id", "shop")
        assert found == [[str(number), f"n{number}"] for number in range(RECORDS)], point


@needs_mariadb
def test_topics_that_differ_only_in_case_have_separate_numbers(
    kafka_bootstrap: str, server: MariaDb, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The database ignores case, in the ledger too: one topic's records would count as already written."""
    kafka, table = Kafka(kafka_bootstrap), fresh("cases")
    lower = kafka.create_topic(tmp_topic("case"), 1)
    upper = kafka.create_topic(lower.upper(), 1)
    spec = sink(kafka, tmp_topic("sink"), f"{lower},{upper}", tmp_path, "jdbc", **options(server, table))
    for begin in (0, 10):  # in one commit
        kafka.produce_ids(lower, range(begin, begin + 5))
        kafka.produce_ids(upper, range(begin + 5, begin + 10))
        run_here(spec)
    found = server.run(f"SELECT id FROM {table} ORDER BY id", "shop")
    assert [int(one) for (one,) in found] == list(range(20))


@needs_mariadb
def test_columns_have_the_records_names_texts_and_types(server: MariaDb, tmp_path: Path) -> None:
    """Names that need quotes, texts beyond the first plane, and the types of a table that Spark creates."""
    at = pa.array([1_700_000_000_123_000], pa.timestamp("us", "UTC"))
    rows = rows_file(
        tmp_path, id=pa.array([1], pa.int64()), **{"order": ["é😀"], "a b`c": [2]}, at=at, yes=[True], raw=[b"\0\xff"],
        price=pa.array([Decimal("1.25")], pa.decimal128(38, 2)), day=pa.array([19_000], pa.date32()), half=[0.5],
    )  # fmt: skip
    table = fresh("kinds")
    target = target_of(tmp_path, url=server.url, dbtable=table, user=USER, password=PASSWORD)
    left = server.run("SHOW TABLES LIKE 'hm\\_%'", "shop")
    for number in (1, 1, 2):
        target.write(rows, table, number)
    wanted = "id, `order`, `a b``c`, at, yes + 0, HEX(raw), price, day, half"
    row = ["1", "é😀", "2", "2023-11-14 22:13:20.123000", "1", "00FF", "1.25", "2022-01-08", "0.5"]
    assert server.run(f"SELECT {wanted} FROM {table}", "shop") == [row, row]
    types = "SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS WHERE TABLE_NAME = "
    found = {one[0]: one[1] for one in server.run(f"{types}'{table}'")}
    assert (found["id"], found["order"], found["price"]) == ("bigint(20)", "longtext", "decimal(38,2)")
    assert found["at"] == "datetime(6)", "Spark's own has whole seconds"
    assert server.run("SHOW TABLES LIKE 'hm\\_%'", "shop") == left


@needs_mariadb
def test_moments_do_not_depend_on_the_workers_time_zone(
    server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_session.end()
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # the next JVM's
    at = pa.array([1_700_000_000_123_000], pa.timestamp("us", "UTC"))
    rows, table = rows_file(tmp_path, id=[1], at=at, day=pa.array([19_000], pa.date32())), fresh("moments")
    target_of(tmp_path, url=server.url, dbtable=table, user=USER, password=PASSWORD).write(rows, table, 1)
    task_session.end()
    assert server.run(f"SELECT at, day FROM {table}", "shop") == [["2023-11-14 22:13:20.123000", "2022-01-08"]]


# --- the source


@needs_mariadb
def test_types_of_a_mariadb_table(server: MariaDb) -> None:
    table = fresh("kinds")
    server.run(
        f"CREATE TABLE {table} (id BIGINT UNSIGNED NOT NULL, i INT, iu INT UNSIGNED, s SMALLINT, t TINYINT, "
        "b BOOLEAN, r FLOAT, d DOUBLE, n DECIMAL(10, 2), v VARCHAR(9), c LONGTEXT, x VARBINARY(3), da DATE, "
        "ti TIME, dt DATETIME(6), ts TIMESTAMP(6) NULL, e ENUM('a', 'b'), j JSON, `from` INT, `a b``c` INT); "
        f"INSERT INTO {table} VALUES (18446744073709551615, 2, 4294967295, 3, 4, true, 1.5, 2.5, 1.25, 'é😀', 'c', "
        "X'00ff', '2024-01-02', '03:04:05', '2024-01-02 03:04:05.123456', '2024-01-02 03:04:05.123456', 'b', "
        f"'{{\"a\": 1}}', 7, 8); INSERT INTO {table} (id) VALUES (2)",
        "shop",
    )
    one = reader(server, mode="bulk", query=f"SELECT * FROM {table} ORDER BY id DESC")
    full, empty = one.run()
    schema = one.batches[0].value_schema
    assert schema is not None
    prefix = "org.apache.kafka.connect.data."
    assert {one.name: (one.schema.type, (one.schema.name or "").removeprefix(prefix)) for one in schema.fields} == {
        "id": ("BYTES", "Decimal"), "i": ("INT32", ""), "iu": ("INT64", ""), "s": ("INT16", ""), "t": ("INT8", ""),
        "b": ("BOOLEAN", ""), "r": ("FLOAT32", ""), "d": ("FLOAT64", ""), "n": ("BYTES", "Decimal"),
        "v": ("STRING", ""), "c": ("STRING", ""), "x": ("BYTES", ""), "da": ("INT32", "Date"), "ti": ("INT32", "Time"),
        "dt": ("INT64", "Timestamp"), "ts": ("INT64", "Timestamp"), "e": ("STRING", ""), "j": ("STRING", ""),
        "from": ("INT32", ""), "a b`c": ("INT32", ""),
    }  # fmt: skip
    moment_ms = 1_704_164_645_123
    assert full == {
        "id": Decimal(2**64 - 1), "i": 2, "iu": 4_294_967_295, "s": 3, "t": 4, "b": True, "r": 1.5, "d": 2.5,
        "n": Decimal("1.25"), "v": "é😀", "c": "c", "x": b"\0\xff", "da": 1_704_153_600_000, "ti": 11_045_000,
        "dt": moment_ms, "ts": moment_ms, "e": "b", "j": json.dumps({"a": 1}), "from": 7, "a b`c": 8,
    }  # fmt: skip
    assert {name: value for name, value in empty.items() if value is not None} == {"id": Decimal(2)}


@needs_mariadb
def test_each_mode_continues_from_its_offset(server: MariaDb) -> None:
    table = fresh("Changes")
    server.run(
        f"CREATE TABLE `{table}` (id INT NOT NULL, `at` DATETIME(6) NOT NULL); INSERT INTO `{table}` VALUES "
        "(1, '2024-01-02 03:04:05'), (2, '2024-01-02 03:04:06.123456'), (3, '2024-01-02 03:04:06.123456')",
        "shop",
    )
    where = {"table_whitelist": f"`{table}`", "timestamp_column_name": "at", "incrementing_column_name": "ID"}
    modes = {
        mode: reader(server, mode=mode, batch_max_rows="1", **where)
        for mode in ("incrementing", "timestamp", "timestamp+incrementing", "bulk")
    }
    for one in modes.values():
        assert ids(one.run()) == [1, 2, 3]
        assert one.batches[0].source_partition == {"protocol": "1", "table": f"`{table}`"}
    server.run(
        f"INSERT INTO `{table}` VALUES (4, '2024-01-02 03:04:06.123456'), (5, '2024-01-02 03:04:06.123457'); "
        f"UPDATE `{table}` SET `at` = '2024-02-01' WHERE id = 1",
        "shop",
    )
    found = {mode: ids(one.run()) for mode, one in modes.items()}
    assert found == {
        "incrementing": [4, 5], "timestamp": [5, 1], "timestamp+incrementing": [4, 5, 1], "bulk": [1, 2, 3, 4, 5],
    }  # fmt: skip
    server.run(f"INSERT INTO `{table}` VALUES (6, NOW(6) - INTERVAL 3 SECOND), (7, NOW(6) + INTERVAL 1 DAY)", "shop")
    assert ids(modes["timestamp"].run()) == [6]
    assert modes["timestamp"].run() == []


@needs_mariadb
def test_the_zone_is_that_of_the_servers_clock(tmp_path: Path) -> None:
    """A server in Tokyo: TIMESTAMP and DATETIME are its local times to a client, and so is its clock."""
    server = MariaDb(tmp_path, ["--default-time-zone=+09:00"])
    server.start()
    try:
        server.run(
            "CREATE TABLE zoned (id INT NOT NULL, dt DATETIME NOT NULL, ts TIMESTAMP NULL, ti TIME); "
            "INSERT INTO zoned VALUES (1, '2024-01-02 03:04:05', '2024-01-02 03:04:05', '03:04:05'), "
            "(2, NOW() - INTERVAL 2 SECOND, NOW(), '00:00:00'), (3, NOW() + INTERVAL 1 HOUR, NOW(), '00:00:00')",
            "shop",
        )
        one = reader(server, mode="timestamp", timestamp_column_name="dt", table_whitelist="zoned",
                     db_timezone="Asia/Tokyo")  # fmt: skip
        first, second = one.run()
        moment_ms = 1_704_164_645_000 - 9 * 3_600_000
        assert first == {"id": 1, "dt": moment_ms, "ts": moment_ms, "ti": 11_045_000}
        assert second["id"] == 2
        assert one.run() == []
    finally:
        server.stop()


@needs_mariadb
def test_an_unreachable_server_and_a_refused_login_are_distinguished(server: MariaDb) -> None:
    wrong = Reader(connection_url=server.url, connection_user=USER, connection_password="hunter22", mode="bulk",
                   table_whitelist="orders")  # fmt: skip
    with pytest.raises(ConfigError) as raised:
        wrong.run()
    assert raised.value.field == "connection.user"
    assert "hunter22" not in str(raised.value)
    with pytest.raises(ConfigError, match="doesn't exist"):
        reader(server, mode="bulk", table_whitelist="absent").run()


# --- H2


def test_h2_is_written_and_read(tmp_path: Path) -> None:
    """H2 folds names to upper case; a table that Spark created keeps their case."""
    url = f"jdbc:h2:mem:shop{next(_numbers)};DB_CLOSE_DELAY=-1"
    at = pa.array([1_700_000_000_000_000, 1_700_000_000_000_000], pa.timestamp("us", "UTC"))
    rows = rows_file(tmp_path, id=[1, 2], order=["a", "é😀"], at=at, price=pa.array([1, 2], pa.decimal128(38, 2)))
    target = target_of(tmp_path, url=url, dbtable="flights")
    for number in (1, 1, 2):
        target.write(rows, "w", number)
    for mode in ("bulk", "incrementing", "timestamp", "timestamp+incrementing"):
        one = Reader(connection_url=url, mode=mode, table_whitelist="flights", incrementing_column_name="id",
                     timestamp_column_name="at", validate_non_null="false")  # fmt: skip
        found = one.run()
        assert sorted(ids(found)) == [1, 1, 2, 2], mode
        assert found[0]["at"] == 1_700_000_000_000
        assert {row["order"] for row in found} == {"a", "é😀"}
        assert {row["price"] for row in found} == {Decimal("1.00"), Decimal("2.00")}
        assert mode == "bulk" or one.run() == []
