"""Tests of `SparkStreamSource` with a real Spark: a built-in format, whose rows are known.

Kafka's records and Iceberg's tables need another Spark:
`test_stream_source_suite`, `test_spark_lakehouse`, in the soak.
"""

from __future__ import annotations

import json

import pytest

from herdmesh.connect.errors import ConfigError
from libs.connectors.tests.spark.stream_reading import RATE, Reader, as_dict

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400), pytest.mark.usefixtures("spark")]


def rate(**more: str) -> Reader:
    """Return a reader of `RATE`."""
    return Reader(**{**RATE, **more})


def test_the_next_run_continues_within_a_slice_wherever_a_run_ends() -> None:
    whole = rate().run()
    assert [row["value"] for row in whole] == list(range(10))
    for polls in range(1, 4):
        reader = rate()
        rows = reader.run(polls) + reader.run()
        assert rows[:10] == whole
        assert reader.offset == {"position": json.dumps({"offset": 10, "timestamp": 1500}, separators=(",", ":"))}


def test_slices_are_consecutive_and_rows_are_structs_with_keys() -> None:
    reader = rate(**{"key.column": "value"})
    values = [row["value"] for _ in range(3) for row in reader.run()]
    assert values == list(range(30))
    batch = reader.batches[0]
    assert (batch.topic, batch.source_partition) == ("t", {"format": "rate-micro-batch"})
    assert list(batch.keys) == [as_dict(value)["value"] for value in batch.values]
    assert {as_dict(value)["timestamp"] for value in batch.values} == {2000}


def test_reading_begins_at_an_altered_offset() -> None:
    reader = rate()
    reader.offset = {"position": '{"offset":500,"timestamp":9000}'}
    assert [row["value"] for row in reader.run()] == list(range(500, 510))


def test_an_unknown_position_or_a_missing_column_fails_the_task() -> None:
    with pytest.raises(ConfigError, match=r"value") as failed:
        rate(**{"key.column": "id"}).run()
    assert failed.value.field == "key.column"
    with pytest.raises(ConfigError) as failed:
        rate(**{"spark.option.rowsPerBatch": "-1"}).run()
    assert failed.value.field == "spark.format"
    reader = rate()
    reader.offset = {"position": '{"offset":0,"timestamp":0}', "end": '{"offset":5,"timestamp":0}', "rows": 6}
    with pytest.raises(ConfigError, match="now it has 5") as failed:
        reader.run()
    assert failed.value.fix
