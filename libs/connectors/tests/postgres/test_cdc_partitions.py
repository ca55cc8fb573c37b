"""Tests of partitioned tables captured by the CDC source: named by
themselves, by their partitions, or both, with later partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connectors.postgres.cdc.partition_trees import Relation, Trees
from libs.connectors.tests.postgres.cdc_driving import Database, Driven

ROOT, PARTS = "app.c.part", {"app.c.part_1", "app.c.part_2", "app.c.part_3"}


@pytest.fixture
def database(tmp_database: str) -> Iterator[Database]:
    made = Database(tmp_database)
    try:
        made.run(
            "CREATE SCHEMA c",
            "CREATE TABLE c.part (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
            "CREATE TABLE c.part_1 PARTITION OF c.part FOR VALUES FROM (0) TO (10)",
            "CREATE TABLE c.part_2 (v text, junk int, id int NOT NULL)",  # in another order
            "ALTER TABLE c.part_2 DROP junk",
            "ALTER TABLE c.part ATTACH PARTITION c.part_2 FOR VALUES FROM (10) TO (20)",
            "INSERT INTO c.part VALUES (1, 'a'), (11, 'b')",
        )
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("config", "topics"),
    [
        ({"table_include_list": r"c\.part"}, {ROOT}),
        ({"table_include_list": r"c\.part_\d"}, PARTS),
        ({"table_include_list": r"c\.part.*"}, PARTS),
        ({}, PARTS),
        ({"publish_via_partition_root": "true"}, {ROOT}),
        ({"table_include_list": r"c\.part", "publication_autocreate_mode": "all_tables"}, {ROOT}),
        ({"publication_autocreate_mode": "all_tables"}, PARTS),
    ],
)
def test_a_partitioned_table_is_captured_with_later_partitions(
    database: Database, config: dict[str, str], topics: set[str]
) -> None:
    with Driven(database.config(**config)) as run:
        read = sorted(run.drain(), key=lambda event: event[1]["id"])
        assert read == [
            ("r", {"id": 1}, None, {"id": 1, "v": "a"}), ("r", {"id": 11}, None, {"id": 11, "v": "b"})
        ]  # fmt: skip
        database.run("CREATE TABLE c.part_3 PARTITION OF c.part FOR VALUES FROM (20) TO (30)",
                     "INSERT INTO c.part VALUES (2, 'c'), (12, 'd'), (21, 'e')")  # fmt: skip
        assert sorted(event[1]["id"] for event in run.drain()) == [2, 12, 21]
        database.run("UPDATE c.part SET v = 'new' WHERE id IN (1, 21)", "DELETE FROM c.part WHERE id = 12")
        assert sorted((event[0], event[1]["id"]) for event in run.drain()) == [
            ("d", 12), ("tombstone", 12), ("u", 1), ("u", 21),
        ]  # fmt: skip
        assert {batch.topic for batch in run.batches if len(batch)} == topics


def test_a_partition_alone_is_captured(database: Database) -> None:
    with Driven(database.config(table_include_list=r"c\.part_2")) as run:
        assert [event[1] for event in run.drain()] == [{"id": 11}]
        database.run("INSERT INTO c.part VALUES (2, 'c'), (12, 'd')")
        assert [event[1] for event in run.drain()] == [{"id": 12}]


@pytest.mark.parametrize(
    ("config", "option", "field", "fix"),
    [
        ({"table_include_list": r"c\.part"}, "false", "table.include.list", "SET (publish_via_partition_root = true)"),
        ({"table_include_list": r"c\.part", "publication_autocreate_mode": "disabled"}, "false", "table.include.list",
         "SET (publish_via_partition_root = true)"),
        ({"publish_via_partition_root": "true"}, "false", "publish.via.partition.root",
         "SET (publish_via_partition_root = true)"),
        ({"table_include_list": r"c\.part_2", "publication_autocreate_mode": "disabled"}, "true", "table.include.list",
         "name c.part there"),
    ],
)  # fmt: skip
def test_a_publication_with_another_name_is_refused(
    database: Database, config: dict[str, str], option: str, field: str, fix: str
) -> None:
    database.run(f"CREATE PUBLICATION dbz_publication FOR TABLE c.part WITH (publish_via_partition_root = {option})")
    with Driven(database.config(**config)) as run, pytest.raises(ConfigError) as refused:
        run.drain()
    assert refused.value.field == field
    assert fix in refused.value.fix


#: root with two branches: one of two partitions, one that is a partition; and an ordinary table.
TREE = [
    Relation(1, "s", "root", "p", None), Relation(2, "s", "branch", "p", 1), Relation(3, "s", "twig_1", "r", 2),
    Relation(4, "s", "twig_2", "r", 2), Relation(5, "s", "leaf", "r", 1), Relation(6, "s", "plain", "r", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("chosen", "via_root", "tables", "needs_option"),
    [
        ("root branch twig_1 twig_2 leaf plain", False, "plain root", False),
        ("root branch twig_1 twig_2 leaf plain", True, "plain root", True),
        ("twig_1 twig_2 leaf", False, "root", False),
        ("root", False, "root", True),
        ("branch", False, "branch", True),
        ("root branch", False, "root", True),
        ("twig_1 twig_2", False, "branch", False),
        ("twig_1 leaf", False, "leaf twig_1", False),
        ("branch leaf", False, "branch leaf", True),
        ("plain", False, "plain", False),
        ("", False, "", False),
    ],
)
def test_the_tables_of_a_publication(chosen: str, via_root: bool, tables: str, needs_option: bool) -> None:
    wanted = Trees(TREE).wanted(lambda _, name: name in chosen.split(), via_root=via_root)
    assert bool(wanted.roots) == needs_option
    assert sorted(one.name for one in wanted.members(via_root=needs_option)) == sorted(tables.split())


def test_partitions_are_published_separately_beside_a_table_sent_under_its_own_name() -> None:
    other = [Relation(7, "t", "whole", "p", None), Relation(8, "t", "piece", "r", 7)]
    wanted = Trees([*TREE, *other]).wanted(lambda _, name: name in ("root", "piece"), via_root=False)
    assert sorted(one.name for one in wanted.members(via_root=True)) == ["piece", "root"]


def test_a_table_without_partitions_is_captured_by_their_likely_name() -> None:
    empty = Trees([Relation(1, "s", "part", "p", None)])
    assert empty.wanted(lambda _, name: name == "part", via_root=False).roots
    assert empty.wanted(lambda _, name: name.startswith("part"), via_root=False).wholes
