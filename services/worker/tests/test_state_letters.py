"""What a letter says of itself, and what is remembered of those that were put back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.topics.error_headers import ERROR_HEADER_PREFIX
from herdmesh.connect.topics.offsets_topic import decode_value, encode_value
from herdmesh.worker.state import dead_letter_headers, dead_letter_replays
from herdmesh.worker.state.dead_letter_headers import Letter, Wanted
from herdmesh.worker.state.dead_letter_replays import Outcome, Replays, Runs


def header(name: str, text: str | None) -> dead_letter_headers.Header:
    return ERROR_HEADER_PREFIX + name, None if text is None else text.encode()


def letter(*errors: dead_letter_headers.Header, **more: object) -> Letter:
    own, last = dead_letter_headers.split([*errors])
    return Letter(0, 5, b"k", b"v", 1_000, own, last, **more)  # pyright: ignore[reportArgumentType]


# --- headers


def test_the_last_failure_is_told_from_earlier_ones_and_from_the_records_own_headers() -> None:
    first = [header("topic", "orders"), header("offset", "3"), header("stage", "VALUE_CONVERTER")]
    second = [header("topic", "dlq-orders"), header("offset", "0"), header("stage", "TRANSFORMATION")]
    own, last = dead_letter_headers.split([("a", b"1"), *first, ("a", b"2"), *second])
    assert own == (("a", b"1"), *first, ("a", b"2"))
    assert last == tuple(second)


def test_a_failure_with_fewer_headers_leaves_none_of_its_own_behind() -> None:
    own, last = dead_letter_headers.split([header("stage", "TASK_PUT"), header("exception.message", None), ("b", None)])
    assert own == (("b", None),)
    found = Letter(0, 0, None, None, None, own, last)
    assert (
        found.error(dead_letter_headers.STAGE),
        found.error(dead_letter_headers.MESSAGE),
        found.error(dead_letter_headers.TOPIC),
    ) == (
        "TASK_PUT",
        None,
        None,
    )


def test_what_is_put_back_has_its_own_headers_and_says_which_letter_it_was() -> None:
    found = letter(("a", b"1"), header("topic", "orders"))
    assert dead_letter_headers.put_back_headers(found, "dlq") == [
        ("a", b"1"),
        (dead_letter_headers.REPLAYED, b"dlq-0@5"),
    ]


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        (Wanted("a"), True),
        (Wanted("b"), False),
        (Wanted("a", stage="value_converter "), True),
        (Wanted("a", stage="TASK_PUT"), False),
        (Wanted("a", error="dataexception"), True),
        (Wanted("a", error="NOT JSON"), True),
        (Wanted("a", error="timeout"), False),
        (Wanted("a", since_ms=1_000), True),
        (Wanted("a", since_ms=1_001), False),
    ],
)
def test_which_letters_are_listed(wanted: Wanted, taken: bool) -> None:
    found = letter(
        header("connector.name", "a"),
        header("stage", "VALUE_CONVERTER"),
        header("exception.class.name", "org.apache.kafka.connect.errors.DataException"),
        header("exception.message", "not JSON: x"),
    )
    assert wanted.takes(found) is taken


def test_a_letter_that_does_not_say_whose_it_is_is_everybodys_and_one_put_back_is_listed_only_when_asked_for() -> None:
    assert Wanted("anybody").takes(letter())
    assert not Wanted("anybody").takes(letter(replayed=True))
    assert Wanted("anybody", replayed=True).takes(letter(replayed=True))


# --- memory

OFFSETS = st.integers(0, 60)


@given(st.lists(st.tuples(OFFSETS, OFFSETS), max_size=12))
def test_runs_remember_exactly_what_was_added_also_when_written_down(added: list[tuple[int, int]]) -> None:
    known, wanted = Replays("dlq", "id"), set[int]()
    for first, last in added:
        known.of(0).add(first, last)
        wanted |= set(range(first, last + 1))
    assert {offset for offset in range(70) if known.has(0, offset)} == wanted
    runs = known.of(0)
    assert all(first > runs.next for first, _ in runs.runs)  # what touches the beginning is in it
    assert all(one[1] + 1 < other[0] for one, other in zip(runs.runs, runs.runs[1:], strict=False))
    again = Replays("dlq", "id")
    again.take(0, decode_value(encode_value(known.offset_of(0))))
    assert (again.of(0).next, again.of(0).runs) == (runs.next, runs.runs)


def test_what_was_deleted_from_the_queue_is_not_remembered_one_by_one() -> None:
    runs = Runs(2, [(5, 5), (9, 12)])
    runs.forget_below(7)
    assert (runs.next, runs.runs) == (7, [(9, 12)])
    runs.forget_below(0)
    assert runs.next == 7


def test_requests_are_remembered_the_newest_ones() -> None:
    known = Replays("dlq", "id")
    for number in range(dead_letter_replays.REQUESTS_MAX + 2):
        known.note(Outcome(f"r{number}", number, "0:5;0:9"))
    known.note(Outcome("", 3))
    again = Replays("dlq", "id")
    again.take(None, decode_value(encode_value(known.offset_of(None))))
    assert again.outcome("r0") is None
    assert again.outcome("") is None
    assert again.outcome("r9") == Outcome("r9", 9, "0:5;0:9")


def test_a_queue_that_was_made_anew_has_nothing_put_back() -> None:
    known = Replays("dlq", "old")
    known.of(0).add(0, 9)
    known.note(Outcome("r", 10))
    again = Replays("dlq", "new")
    again.take(0, known.offset_of(0))
    again.take(None, known.offset_of(None))
    assert not again.has(0, 3)
    assert again.outcome("r") is None


def test_what_cannot_be_read_is_not_taken_for_nothing() -> None:
    with pytest.raises(DataError, match="cannot be read"):
        Replays("dlq", "id").take(0, {"topic.id": "id", "next": 3})


def test_more_single_letters_than_a_record_holds_are_refused() -> None:
    known = Replays("dlq", "id")
    known.partitions[0] = Runs(0, [(number, number) for number in range(1, 400_000, 2)])
    with pytest.raises(DataError, match="put all of them back"):
        known.offset_of(0)
