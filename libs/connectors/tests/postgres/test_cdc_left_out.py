"""Tests of reports about uncaptured data of a CDC source: rows
that a policy hides, tables that inherit, names without a table.
"""

from __future__ import annotations

import logging

import pytest

from herdmesh.connect.errors import ConfigError
from libs.connectors.tests.postgres.cdc_driving import Database, Driven


def test_rows_hidden_by_a_policy_are_not_left_out_silently(tmp_database: str) -> None:
    database = Database(tmp_database)
    role = f"{database.slot}_reader"
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY", "CREATE POLICY odd ON t USING (id % 2 = 1)",
        f"CREATE ROLE {role} LOGIN REPLICATION", f"GRANT SELECT ON t TO {role}",
        "CREATE PUBLICATION dbz_publication FOR TABLE t",
    )  # fmt: skip
    config = database.config(publication_autocreate_mode="disabled") | {"database.user": role}
    try:
        with (
            Driven(config) as run,
            pytest.raises(ConfigError, match=r'"public"\."t" cannot be read completely') as refused,
        ):
            run.drain()
        assert (refused.value.field, refused.value.fix) == (
            "database.user", f'ALTER ROLE "{role}" BYPASSRLS, or leave the table out',
        )  # fmt: skip
        database.run(f"ALTER ROLE {role} BYPASSRLS")
        with Driven(config) as run:
            assert [event[1] for event in run.drain()] == [{"id": 1}, {"id": 2}]
    finally:
        database.drop_slots()
        database.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
        database.close()


def test_uncaptured_tables_named_in_the_config_have_a_warning(
    tmp_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(tmp_database)
    database.run(
        "CREATE TABLE parent (id int PRIMARY KEY)", "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "CREATE TABLE grandchild () INHERITS (child)", "CREATE TABLE known (PRIMARY KEY (id)) INHERITS (parent)",
        "CREATE VIEW v AS TABLE parent", "CREATE UNLOGGED TABLE u (id int PRIMARY KEY)",
        "INSERT INTO child VALUES (1)", "INSERT INTO known VALUES (2)",
    )  # fmt: skip
    chosen = r"public\.parent, public\.known, public\.(v|u), public\.typo"
    try:
        with caplog.at_level(logging.WARNING), Driven(database.config(table_include_list=chosen)) as run:
            assert [event[1] for event in run.drain()] == [{"id": 2}]
    finally:
        database.close()
    assert (
        r"nothing is captured of public\.(v|u) (public.u, an unlogged table, public.v, a view); public\.typo (there is "
        "no such table)"
    ) in caplog.text
    assert (
        "rows of public.child (which inherits from public.parent), public.grandchild (which inherits from "
        "public.parent) are not captured"
    ) in caplog.text
