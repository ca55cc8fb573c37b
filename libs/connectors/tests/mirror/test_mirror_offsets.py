"""Tests of a mirror's offsets: MirrorMaker's bytes, the translation, and which offset syncs are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connectors.mirror.offset_translation import (
    Checkpoint,
    OffsetSync,
    Syncing,
    Translation,
    is_news,
    read_checkpoint,
    read_sync,
    to_set,
)

ORDERS = ("orders", 3)


def translation(*pairs: tuple[int, int]) -> Translation:
    found = Translation()
    for upstream, downstream in pairs:
        found.add(OffsetSync(ORDERS, upstream, downstream))
    return found


# --- bytes


def test_an_offset_sync_has_the_bytes_of_javas_schemas() -> None:
    """`OffsetSync.KEY_SCHEMA` STRING topic, INT32 partition; `VALUE_SCHEMA` INT64 upstreamOffset, INT64 offset."""
    sync = OffsetSync(("ü", 258), 0x0102030405060708, 9)
    assert sync.key() == bytes.fromhex("0002 c3bc 00000102")
    assert sync.value() == bytes.fromhex("0102030405060708 0000000000000009")
    assert read_sync(sync.key(), sync.value()) == sync


def test_a_checkpoint_has_the_bytes_of_javas_schemas() -> None:
    """`Checkpoint.KEY_SCHEMA` STRING group, STRING topic, INT32 partition; a header INT16 version, then
    `VALUE_SCHEMA_V0` INT64 upstreamOffset, INT64 offset, STRING metadata."""
    one = Checkpoint("g", ("a.t", 1), 5, 6, "m")
    assert one.key() == bytes.fromhex("0001 67 0003 612e74 00000001")
    assert one.value() == bytes.fromhex("0000 0000000000000005 0000000000000006 0001 6d")
    assert read_checkpoint(one.key(), one.value()) == one


@pytest.mark.parametrize(
    ("key", "value"), [(b"", b""), (b"\0\5abc", b"\0" * 16), (b"\0\1t\0\0", b"\0" * 16), (b"\0\1t\0\0\0\0", b"\0")]
)
def test_other_bytes_are_refused_as_sync_and_checkpoint(key: bytes, value: bytes) -> None:
    for read in (read_sync, read_checkpoint):
        with pytest.raises(ValueError, match=r"no offset sync|no checkpoint|a string of"):
            read(key, value)
    one = Checkpoint("g", ORDERS, 0, 0)
    with pytest.raises(ValueError, match="version 1"):
        read_checkpoint(one.key(), b"\0\1" + one.value()[2:])


# --- translation


@pytest.mark.parametrize(
    ("upstream", "downstream"),
    [
        (9, None),  # before all known syncs
        (10, 100),  # at a sync: its offset
        (11, 101),  # after it: the next offset, whatever lies between
        (19, 101),
        (20, 110),
        (21, 111),  # the end of the source
        (10_000, 111),
    ],
)
def test_a_group_continues_at_the_last_sync_before_it_or_one_further(upstream: int, downstream: int | None) -> None:
    assert translation((10, 100), (20, 110)).of(ORDERS, upstream) == downstream
    assert translation((10, 100), (20, 110)).of(("orders", 4), upstream) is None


def test_a_recreated_topic_discards_earlier_syncs() -> None:
    assert translation((10, 10), (20, 20), (5, 25)).of(ORDERS, 4) is None
    assert translation((10, 10), (20, 20), (5, 25)).of(ORDERS, 20) == 26
    assert translation((10, 10), (20, 20), (30, 0)).of(ORDERS, 29) is None, "the copy was made anew"
    assert translation((10, 10), (20, 20), (20, 25)).of(ORDERS, 20) == 25


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), min_size=1, max_size=700), st.data())
def test_no_record_is_skipped_for_any_number_of_syncs(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """Records are dense at the source and sparse at the target, where markers and other writers' records lie between.
    The translation is coarser with the distance from the end, never wrong, and increases with the offset.
    """
    at: list[int] = []  # the downstream offset of each upstream one
    known = Translation()
    for records, others in steps:
        first = (at[-1] + 1 if at else 0) + others
        at += range(first, first + records)
        known.add(OffsetSync(ORDERS, len(at) - 1, at[-1]))
    group = data.draw(st.integers(0, len(at)))
    found = known.of(ORDERS, group)
    if found is None:
        assert group < steps[0][0] - 1
        return
    assert found <= (at[group] if group < len(at) else at[-1] + 1)
    before = known.of(ORDERS, group - 1)
    assert before is None or before <= found
    distance = len(at) - group
    assert distance > 50 or group < steps[0][0] or found > at[max(0, group - 4 * distance - 102)]


# --- checkpoints


@pytest.mark.parametrize(
    ("found", "last", "news"),
    [
        ((5, 50), None, True),
        ((5, 50), (5, 50), False),
        ((6, 50), (5, 50), False),  # further at the source, and not known to be at the target
        ((6, 51), (5, 50), True),
        ((6, 49), (5, 50), False),  # the syncs became sparser
        ((4, 49), (5, 50), True),  # the group went back
        ((4, 50), (5, 50), True),
    ],
)
def test_a_checkpoint_is_written_when_it_is_first_or_further_or_the_group_went_back(
    found: tuple[int, int], last: tuple[int, int] | None, news: bool
) -> None:
    assert is_news(Checkpoint("g", ORDERS, *found), last and Checkpoint("g", ORDERS, *last)) is news


def test_a_group_is_only_moved_forward() -> None:
    told = [Checkpoint("g", ("t", number), 9, 10) for number in range(4)]
    assert to_set(told, {("t", 0): 9, ("t", 1): 10, ("t", 2): 11}) == [told[0], told[3]]


# --- which syncs are written


def test_a_commit_has_a_sync_of_its_last_record_and_a_run_one_of_its_first() -> None:
    syncing = Syncing(100)
    syncing.begin({ORDERS: 7})
    syncing.took(ORDERS, 2, 41)
    syncing.took(ORDERS, 3, 44)
    syncing.took(("other", 0), 3, 44)
    assert syncing.partitions_due() == [], "not committed"
    syncing.committed()
    assert syncing.partitions_due() == [ORDERS]
    assert syncing.syncs_due({ORDERS: 12}) == [], "the marker of the transaction is not there yet"
    assert syncing.syncs_due({ORDERS: 13}) == [OffsetSync(ORDERS, 40, 7), OffsetSync(ORDERS, 44, 11)]
    assert syncing.partitions_due() == []
    syncing.took(ORDERS, 1, 50)
    syncing.committed()
    assert syncing.syncs_due({ORDERS: 15}) == [OffsetSync(ORDERS, 50, 13)]


def test_syncs_within_a_commit_follow_the_maximum_lag() -> None:
    syncing = Syncing(100)
    syncing.begin({ORDERS: 0})
    for number in range(1, 11):
        syncing.took(ORDERS, 60, number * 60 - 1)
    syncing.committed()
    found = syncing.syncs_due({ORDERS: 601})
    assert [sync.upstream for sync in found] == [0, 119, 239, 359, 479, 599]
    assert [sync.downstream for sync in found] == [0, 119, 239, 359, 479, 599]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.lists(st.integers(1, 3), min_size=1, max_size=9), st.integers(0, 3), st.booleans()
        ),
        max_size=9,
    ),
    st.integers(0, 5),
    st.integers(1, 4),
)
def test_no_group_skips_a_record_despite_other_writers(
    commits: list[tuple[int, list[int], int, bool]], lag_max: int, batch: int
) -> None:
    """Each commit has other writers' records before, ours with gaps between their offsets at the source, and others'
    after; then the ends are read, or not in time.
    """
    syncing, known = Syncing(lag_max), Translation()
    end, upstream = 0, -1
    copies: dict[int, int] = {}  # downstream by upstream
    syncing.begin({ORDERS: 0})
    for before, steps, after, is_looked_at in commits:
        end += before
        for place in range(0, len(steps), batch):
            for step in steps[place : place + batch]:
                upstream += step
                copies[upstream] = end
                end += 1
            syncing.took(ORDERS, len(steps[place : place + batch]), upstream)
        end += 1 + after
        syncing.committed()
        if is_looked_at:
            for sync in syncing.syncs_due({ORDERS: end}):
                known.add(sync)
            assert not syncing.partitions_due()
            assert known.of(ORDERS, upstream + 1) is not None
    for group in range(upstream + 2):
        found = known.of(ORDERS, group)
        rest = [downstream for at, downstream in copies.items() if at >= group]
        assert found is None or found <= min(rest, default=end)


def test_syncs_of_a_single_writer_are_exact() -> None:
    syncing, known = Syncing(0), Translation()
    syncing.begin({ORDERS: 5})
    syncing.took(ORDERS, 10, 9)
    syncing.committed()
    for sync in syncing.syncs_due({ORDERS: 16}):
        known.add(sync)
    assert [known.of(ORDERS, group) for group in (0, 1, 9, 10)] == [5, 6, 14, 15]


def test_long_pending_batches_are_merged_to_one() -> None:
    """While the ends of the copies are unknown. Two commits'
    markers lie between, so the sync is correct and not exact.
    """
    syncing = Syncing(0)
    syncing.begin({ORDERS: 0})
    for number in range(2_000):
        syncing.took(ORDERS, 1, number)
        syncing.committed()
    assert syncing.syncs_due({ORDERS: 2_000}) == []
    told = syncing.syncs_due({ORDERS: 4_000})
    assert (told[0], told[-1]) == (OffsetSync(ORDERS, 0, 0), OffsetSync(ORDERS, 1_999, 1_999))
    assert len(told) <= 1_002


def test_a_recreated_copy_has_syncs_from_its_new_end() -> None:
    syncing, one = Syncing(0), ("t", 0)
    syncing.begin({one: 50})
    syncing.took(one, 5, 104)
    syncing.committed()
    assert syncing.syncs_due({one: 2}) == []
    assert syncing.partitions_due() == [], "nobody knows which of these are in the new copy"
    syncing.took(one, 3, 107)
    syncing.committed()
    assert syncing.syncs_due({one: 6}) == [OffsetSync(one, 105, 0), OffsetSync(one, 105, 2), OffsetSync(one, 107, 4)]


@pytest.mark.parametrize("end", [2, 900], ids=["shorter", "longer"])
def test_a_reader_discards_syncs_of_the_earlier_copy_whatever_the_new_length(end: int) -> None:
    """A sync that goes back causes it: the same record at the beginning of the copy."""
    syncing, known, one = Syncing(0), Translation(), ("t", 0)
    syncing.begin({one: 50})
    syncing.took(one, 5, 104)
    syncing.committed()
    told = syncing.syncs_due({one: 56})
    syncing.made_again({one: end, ("unknown", 0): 5})
    syncing.took(one, 3, 107)
    syncing.committed()
    for sync in [*told, *syncing.syncs_due({one: end + 4})]:
        known.add(sync)
    assert known.of(one, 104) is None, "it is in the copy before"
    assert (known.of(one, 105), known.of(one, 107)) == (end, end + 2)
