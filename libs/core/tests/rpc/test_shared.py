"""Messages made once for many streams."""

from __future__ import annotations

import gc

from herdmesh.api.common.v1 import revision_pb2
from herdmesh.rpc import shared
from herdmesh.rpc.shared import SharedMessages

_Revision = revision_pb2.Revision


def _make(store_id: str) -> _Revision:
    return _Revision(store_id=store_id, next_offsets=[1, 2])


def test_a_message_is_made_and_turned_into_bytes_once_per_object_and_variant() -> None:
    messages = SharedMessages(10_000)
    first, equal = ["a"], ["a"]
    made: list[str] = []

    def make(name: str) -> _Revision:
        made.append(name)
        return _make(name)

    one = messages.get(first, None, lambda: make("first"))
    assert messages.get(first, None, lambda: make("again")) is one
    assert messages.get(first, 1, lambda: make("variant")) is not one
    assert messages.get(equal, None, lambda: make("equal")).store_id == "equal"
    assert made == ["first", "variant", "equal"]
    serialized: list[_Revision] = []
    serialize = shared.serializer(lambda message: serialized.append(message) or message.SerializeToString())
    assert serialize(one) == one.SerializeToString()
    assert not serialized
    other = _make("first")
    assert serialize(other) == other.SerializeToString()
    assert serialized == [other]


def test_what_was_not_asked_for_longest_goes_when_there_is_no_room() -> None:
    size = len(_make("0").SerializeToString())
    messages = SharedMessages(size * 3)
    owners = [[number] for number in range(4)]
    kept = [
        messages.get(owner, None, lambda number=number: _make(str(number))) for number, owner in enumerate(owners[:3])
    ]
    assert messages.get(owners[0], None, lambda: _make("9")) is kept[0]
    messages.get(owners[3], None, lambda: _make("3"))
    assert messages.get(owners[0], None, lambda: _make("9")) is kept[0]
    assert messages.get(owners[1], None, lambda: _make("9")).store_id == "9", "it was forgotten"


def test_nothing_is_left_of_a_memory_that_is_gone() -> None:
    before = len(shared._bytes_of)  # pyright: ignore[reportPrivateUsage]
    messages = SharedMessages(10_000)
    messages.get([1], None, lambda: _make("a"))
    assert len(shared._bytes_of) == before + 1  # pyright: ignore[reportPrivateUsage]
    del messages
    gc.collect()
    assert len(shared._bytes_of) == before  # pyright: ignore[reportPrivateUsage]
