"""Headers of dead letters, and the record of the replayed ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.topics.error_headers import ERROR_HEADER_PREFIX
from herdmesh.connect.topics.offsets_topic import decode_value, encode_value
from herdmesh.worker.state import dead_letter_headers, dead_letter_replays
from herdmesh.worker.state.dead_letter_headers import DeadLetter, Wanted
from herdmesh.worker.state.dead_letter_replays import Outcome, Replays, Runs


def header(name: str, text: str | None) -> dead_letter_headers.Header:
    return ERROR_HEADER_PREFIX + name, None if text is None else text.encode()


def letter(*errors: dead_letter_headers.Header, **more: object) -> DeadLetter:
    own, last = dead_letter_headers.split([*errors])
    return DeadLetter(0, 5, b"k", b"v", 1_000, own, last, **more)  # pyright: ignore[reportArgumentType]


# --- headers


def test_the_last_failures_headers_are_split_from_earlier_ones_and_the_records_own() -> None:
    first = [header("topic", "orders"), header("offset", "3"), header("stage", "VALUE_CONVERTER")]
    second = [header("topic", "dlq-orders"), header("offset", "0"), header("stage", "TRANSFORMATION")]
    own, last = dead_letter_headers.split([("a", b"1"), *first, ("a", b"2"), *second])
    assert own == (("a", b"1"), *first, ("a", b"2"))
    assert last == tuple(second)


def test_a_header_missing_in_the_last_failure_is_none() -> None:
    own, last = dead_letter_headers.split([header("stage", "TASK_PUT"), header("exception.message", None), ("b", None)])
    assert own == (("b", None),)
    found = DeadLetter(0, 0, None, None, None, own, last)
    assert (
        found.error(dead_letter_headers.STAGE),
        found.error(dead_letter_headers.MESSAGE),
        found.error(dead_letter_headers.TOPIC),
    ) == (
        "TASK_PUT",
        None,
        None,
    )


def test_a_message_that_ends_with_a_colon_is_followed_by_its_last_cause() -> None:
    trace = "a.B: serialization error: \n\tat x\nCaused by: c.D: outer\nCaused by: e.F: unexpected '}': at 39\n\tat y\n"
    message = header("exception.message", "serialization error: ")
    assert letter(message, header("exception.stacktrace", trace)).brief_message == (
        "serialization error: unexpected '}': at 39"
    )
    assert letter(message).brief_message == "serialization error: "
    assert letter(header("exception.message", "bad"), header("exception.stacktrace", trace)).brief_message == "bad"
    assert letter().brief_message is None


def test_a_replayed_record_has_its_own_headers_and_the_place_of_its_dead_letter() -> None:
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
def test_dead_letters_match_the_filters_of_a_request(wanted: Wanted, taken: bool) -> None:
    found = letter(
        header("connector.name", "a"),
        header("stage", "VALUE_CONVERTER"),
        header("exception.class.name", "org.apache.kafka.connect.errors.DataException"),
        header("exception.message", "not JSON: x"),
    )
    assert wanted.takes(found) is taken


def test_a_dead_letter_without_connector_is_listed_for_all_and_a_replayed_one_on_request() -> None:
    assert Wanted("anybody").takes(letter())
    assert not Wanted("anybody").takes(letter(replayed=True))
    assert Wanted("anybody", replayed=True).takes(letter(replayed=True))


# --- record of replays

OFFSETS = st.integers(0, 60)


@given(st.lists(st.tuples(OFFSETS, OFFSETS), max_size=12))
def test_replayed_ranges_hold_exactly_the_added_offsets_also_when_stored(added: list[tuple[int, int]]) -> None:
    known, wanted = Replays("dlq", "id"), set[int]()
    for first, last in added:
        known.of(0).add(first, last)
        wanted |= set(range(first, last + 1))
    assert {offset for offset in range(70) if known.has(0, offset)} == wanted
    runs = known.of(0)
    assert all(first > runs.next for first, _ in runs.runs)  # an adjacent range is merged into `next`
    assert all(one[1] + 1 < other[0] for one, other in zip(runs.runs, runs.runs[1:], strict=False))
    again = Replays("dlq", "id")
    again.take(0, decode_value(encode_value(known.offset_of(0))))
    assert (again.of(0).next, again.of(0).runs) == (runs.next, runs.runs)


def test_offsets_deleted_from_the_queue_are_not_stored_one_by_one() -> None:
    runs = Runs(2, [(5, 5), (9, 12)])
    runs.forget_below(7)
    assert (runs.next, runs.runs) == (7, [(9, 12)])
    runs.forget_below(0)
    assert runs.next == 7


def test_only_the_newest_outcomes_of_requests_are_kept() -> None:
    known = Replays("dlq", "id")
    for number in range(dead_letter_replays.REQUESTS_MAX + 2):
        known.note(Outcome(f"r{number}", number, "0:5;0:9"))
    known.note(Outcome("", 3))
    again = Replays("dlq", "id")
    again.take(None, decode_value(encode_value(known.offset_of(None))))
    assert again.outcome("r0") is None
    assert again.outcome("") is None
    assert again.outcome("r9") == Outcome("r9", 9, "0:5;0:9")


def test_a_recreated_queue_has_no_replayed_dead_letters() -> None:
    known = Replays("dlq", "old")
    known.of(0).add(0, 9)
    known.note(Outcome("r", 10))
    again = Replays("dlq", "new")
    again.take(0, known.offset_of(0))
    again.take(None, known.offset_of(None))
    assert not again.has(0, 3)
    assert again.outcome("r") is None


def test_an_unreadable_replay_record_is_an_error() -> None:
    with pytest.raises(DataError, match="cannot be read"):
        Replays("dlq", "id").take(0, {"topic.id": "id", "next": 3})


def test_more_single_dead_letters_than_a_record_holds_are_refused() -> None:
    known = Replays("dlq", "id")
    known.partitions[0] = Runs(0, [(number, number) for number in range(1, 400_000, 2)])
    with pytest.raises(DataError, match="replay all of them"):
        known.offset_of(0)
