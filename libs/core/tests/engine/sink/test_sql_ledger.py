"""The ledger in SQL, on SQLite: one owner, many, and the meaning of an unexpected row."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi.connector import PartitionId, SinkBatch
from herdmesh.engine.runtime.errors import LedgerTaken, TaskFailed
from herdmesh.engine.sink.ledger import over_group
from herdmesh.engine.sink.sql_ledger import NOBODY, SqlLedger
from libs.core.tests.engine.ledger_story import RECORDS, STEPS, Step, Story
from libs.core.tests.engine.sqlite_ledger import SqliteTarget
from tests.support.sizes import soak_or

ORDERS: PartitionId = ("orders", 0)
OTHERS: PartitionId = ("orders", 1)


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def ledger(database: sqlite3.Connection, owner: str, connector: str = "sink") -> SqlLedger:
    found = SqlLedger(database.execute, '"led{}ger"', connector, owner, marker="?")
    database.execute(found.definition)
    return found


def batch(first: int, last: int, partition: PartitionId = ORDERS) -> SinkBatch:
    return SinkBatch("routed", partition[1], first, last, [1], [1], [last], [None], original_topic=partition[0])


def begun(database: sqlite3.Connection, owner: str, offset: int = 0) -> SqlLedger:
    found = ledger(database, owner)
    found.claim([ORDERS])
    found.begin({ORDERS: offset})
    return found


def test_a_row_moves_with_its_batches_over_any_gap(database: sqlite3.Connection) -> None:
    first = begun(database, "a", 3)
    assert first.move(batch(3, 5))
    assert first.move(batch(9, 9)), "6 to 8 were left out"
    assert first.behind({ORDERS: 10}) == []
    assert first.behind({ORDERS: 12}) == [ORDERS]
    first.advance({ORDERS: 12})
    assert ledger(database, "b").claim([ORDERS]) == {ORDERS: 12}


def test_a_superseded_owner_changes_nothing(database: sqlite3.Connection) -> None:
    stale = begun(database, "a")
    assert ledger(database, "b").claim([ORDERS]) == {ORDERS: 0}
    for move in (lambda: stale.move(batch(0, 4)), lambda: stale.advance({ORDERS: 9}), lambda: stale.begin({ORDERS: 7})):
        with pytest.raises(LedgerTaken, match=r"orders-0.* taken over by b"):
            move()
    assert ledger(database, "c").claim([ORDERS]) == {ORDERS: 0}


def test_an_equal_offset_is_no_proof_of_ownership(database: sqlite3.Connection) -> None:
    """1. a is frozen at 5. 2. Offsets are set back, b writes 2 to 5. 3. a wakes: the row is at 5, as it left it."""
    stale = begun(database, "a", 5)
    ledger(database, NOBODY).alter({ORDERS: 2})
    with pytest.raises(LedgerTaken, match="a change of offsets"):
        stale.move(batch(5, 6))
    later = ledger(database, "b")
    assert later.claim([ORDERS]) == {ORDERS: 2}
    later.begin({ORDERS: 2})
    assert later.move(batch(2, 4))
    with pytest.raises(LedgerTaken):
        stale.move(batch(5, 6))


def test_an_owner_that_has_not_begun_cannot_begin_after_the_next(database: sqlite3.Connection) -> None:
    early, late = ledger(database, "a"), ledger(database, "b")
    assert early.claim([ORDERS]) == {}
    assert late.claim([ORDERS]) == {}, "a row that nobody has begun is none"
    with pytest.raises(LedgerTaken):
        early.begin({ORDERS: 0})
    late.begin({ORDERS: 4})
    assert ledger(database, "c").claim([ORDERS]) == {ORDERS: 4}


def test_a_commit_without_a_confirmation_is_not_repeated(database: sqlite3.Connection) -> None:
    owner = begun(database, "a")
    assert owner.move(batch(0, 4))
    assert not owner.move(batch(0, 4)), "the first did commit"
    database.execute("BEGIN")
    assert owner.move(batch(5, 9))
    database.execute("ROLLBACK")
    assert owner.move(batch(5, 9)), "the first did not"
    assert owner.move(batch(10, 10))


@pytest.mark.parametrize(("change", "told"), [("next_offset = 2", "stands at 2"), ("connector = 'x'", "is gone")])
def test_a_target_that_was_set_back_ends_the_run(database: sqlite3.Connection, change: str, told: str) -> None:
    owner = begun(database, "a")
    assert owner.move(batch(0, 4))
    database.execute(f'UPDATE "led{{}}ger" SET {change}')
    with pytest.raises(TaskFailed, match=told) as failed:
        owner.move(batch(5, 9))
    assert failed.value.error_class is ErrorClass.RETRIABLE


def test_offsets_are_altered_and_reset(database: sqlite3.Connection) -> None:
    owner = ledger(database, "a")
    owner.claim([ORDERS, OTHERS, ("more", 0)])
    owner.begin({ORDERS: 5, OTHERS: 6, ("more", 0): 7})
    begun_elsewhere = ledger(database, "z", "another")
    begun_elsewhere.claim([ORDERS])
    begun_elsewhere.begin({ORDERS: 1})
    outside = ledger(database, NOBODY)
    assert outside.all_owners() == {"a"}
    outside.alter({ORDERS: 1, OTHERS: None, ("new", 3): 9})
    partitions = [ORDERS, OTHERS, ("more", 0), ("new", 3)]
    assert ledger(database, "b").claim(partitions) == {ORDERS: 1, ("more", 0): 7, ("new", 3): 9}
    assert ledger(database, "c").owners(partitions) == {"b"}
    outside.alter({ORDERS: None})  # a reset names the offsets of the group, which may be fewer
    assert ledger(database, "d").claim(partitions) == {}
    assert ledger(database, "e", "another").claim([ORDERS]) == {ORDERS: 1}


def test_deleted_partitions_are_removed_only_by_their_owner(database: sqlite3.Connection) -> None:
    stale = begun(database, "a", 3)
    owner = ledger(database, "b")
    owner.claim([ORDERS])
    stale.forget([ORDERS])
    assert owner.move(batch(3, 3))
    owner.forget([ORDERS])
    assert ledger(database, "c").claim([ORDERS]) == {}


def test_the_ledger_overrides_the_group_offsets() -> None:
    group = {ORDERS: (5, "told"), OTHERS: (6, ""), ("new", 0): (None, "")}
    assert over_group(group, {ORDERS: 2, ("new", 0): 4}) == {ORDERS: (2, "told"), OTHERS: (6, ""), ("new", 0): (4, "")}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> SqliteTarget:
    return SqliteTarget(tmp_path_factory.mktemp("ledger") / "target.db")


@given(records=RECORDS, steps=STEPS)
@settings(max_examples=soak_or(100, 5_000), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_interleaving_of_owners_writes_each_record_once(
    target: SqliteTarget, records: list[tuple[int, bool]], steps: list[Step]
) -> None:
    Story.of(target, records).tell(steps)


class _AnyOwner(SqlLedger):
    """A broken ledger: moves the row whoever owns it."""

    def _run(self, statement: str, *parameters: Any) -> Any:
        if statement.startswith("UPDATE {table} SET next_offset = {} WHERE {row} AND owner"):
            statement, parameters = "UPDATE {table} SET next_offset = {} WHERE {row}", parameters[:4]
        return super()._run(statement, *parameters)


class _Forgetful(SqlLedger):
    """A broken ledger: reads a row at the offset of its own last transaction as not yet written."""

    def move(self, batch: SinkBatch) -> bool:
        super().move(batch)
        return True


STALE: list[Step] = [
    (0, "take", 0), (0, "open", 2), (0, "commit", 0), (1, "take", 0), (1, "open", 2), (1, "commit", 0), (0, "open", 2),
    (0, "commit", 0),
]  # fmt: skip
UNHEARD: list[Step] = [(0, "take", 0), (0, "open", 2), (0, "lose", 0), (0, "open", 2), (0, "commit", 0)]


@pytest.mark.parametrize(("make", "steps"), [(_AnyOwner, STALE), (_Forgetful, UNHEARD)])
def test_the_story_catches_a_broken_ledger(target: SqliteTarget, make: type[SqlLedger], steps: Sequence[Step]) -> None:
    records = [(1, False)] * 8
    Story.of(target, records).tell(steps)
    with pytest.raises(AssertionError):
        Story.of(target, records, make=make).tell(steps)
