"""Tests of the shared table of sample values in a PostgreSQL
sink: the created column for each, and its value.
"""

from __future__ import annotations

from herdmesh.connect.model.data import JavaDate
from libs.connectors.tests.postgres.sink_driver import Driven, ask
from libs.connectors.tests.postgres.sink_values import AS_JSON, HELD
from tests.support.sample_values import FIELD, UNFIT, WITH_SCHEMA, Sample, in_struct


def test_every_type_has_its_column_and_its_value(tmp_database: str) -> None:
    samples = [one for one in WITH_SCHEMA if one.name not in AS_JSON]
    held = dict[str, tuple[str, str | None]]()
    with Driven(tmp_database, auto_create="true") as sink:
        for number, sample in enumerate(samples):
            _put(sink, sample, f"t{number}")
            held[sample.name] = sink.rows(
                f"SET timezone = 'UTC'; SELECT format_type(atttypid, atttypmod), (SELECT {FIELD}::text FROM t{number}) "
                f"FROM pg_attribute WHERE attrelid = 't{number}'::regclass AND attname = '{FIELD}'"
            )[0]  # fmt: skip
    assert held == HELD


def test_values_without_a_column_type_are_written_to_json(tmp_database: str) -> None:
    ask(tmp_database, f"CREATE TABLE orders (id int, {FIELD} json)")
    with Driven(tmp_database) as sink:
        for sample in (one for one in WITH_SCHEMA if one.name in AS_JSON):
            _put(sink, sample, "orders")
        held = [row[0] for row in sink.rows(f"SELECT {FIELD}::text FROM orders ORDER BY ctid")]
    assert held == list(AS_JSON.values())


def _put(sink: Driven, sample: Sample, topic: str) -> None:
    value, schema = in_struct(sample)
    sink.put([value], schema=schema, topic=topic)
    assert sink.reporter.reported == [], sample.name


def test_a_value_that_does_not_fit_is_refused_alone(tmp_database: str) -> None:
    fine = {"INT32": 5, "INT64": 5, "STRING": "x", "INT8": 5, "ARRAY": [1]}
    with Driven(tmp_database, auto_create="true") as sink:
        for number, sample in enumerate(UNFIT):
            assert sample.schema is not None
            good = JavaDate(0) if sample.schema.name else fine[sample.schema.type]
            made = [Sample("fine", good, sample.schema), sample, Sample("fine", good, sample.schema)]
            values = [in_struct(one, place)[0] for place, one in enumerate(made)]
            first = sink.next
            sink.put(values, schema=in_struct(sample)[1], topic=f"u{number}")
            assert [offset - first for offset, _ in sink.reporter.reported] == [1], sample.name
            assert sink.rows(f"SELECT id FROM u{number} ORDER BY id") == [(0,), (2,)]
            sink.reporter.reported.clear()
