"""Messages encoded once for many receivers."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from herdmesh.api.common.v1 import revision_pb2
from herdmesh.api.herder.v1 import config_messages_pb2, connector_pb2
from herdmesh.rpc import encoded
from herdmesh.rpc.encoded import EncodedViews

_Revision = revision_pb2.Revision


def _make(store_id: str) -> _Revision:
    return _Revision(store_id=store_id, next_offsets=[1, 2])


def test_a_message_is_encoded_once_per_key_and_object() -> None:
    views = EncodedViews(10_000)
    first, equal = ["a"], ["a"]
    one = views.get("key", first, lambda: _make("first"))
    assert one == _make("first").SerializeToString()
    assert views.get("key", first, lambda: _make("again")) is one
    assert views.get("other", first, lambda: _make("other")) is not one
    assert _Revision.FromString(views.get("key", equal, lambda: _make("equal"))).store_id == "equal"
    assert views.made_count == 3
    assert len(views) == 2, "what was made from the object before is not kept"


def test_the_serializer_sends_bytes_as_they_are_and_encodes_messages() -> None:
    serialize = encoded.serializer(lambda message: message.SerializeToString())
    data = _make("first").SerializeToString()
    assert serialize(data) is data
    assert serialize(_make("first")) == data


def test_the_least_recently_used_encoding_is_evicted_when_the_cache_is_full() -> None:
    size = len(_make("0").SerializeToString())
    views = EncodedViews(size * 3)
    owners = [[number] for number in range(4)]
    kept = [views.get(n, owner, lambda n=n: _make(str(n))) for n, owner in enumerate(owners[:3])]
    assert views.get(0, owners[0], lambda: _make("9")) is kept[0]
    views.get(3, owners[3], lambda: _make("3"))
    assert views.get(0, owners[0], lambda: _make("9")) is kept[0]
    assert _Revision.FromString(views.get(1, owners[1], lambda: _make("9"))).store_id == "9", "it was forgotten"


@given(st.lists(st.text(max_size=300), max_size=5), st.text(max_size=40))
def test_a_response_joined_from_encoded_fields_equals_one_encoded_whole(names: list[str], token: str) -> None:
    connectors = [connector_pb2.Connector(name=name) for name in names]
    whole = config_messages_pb2.ListConnectorsResponse(connectors=connectors, next_page_token=token)
    fields = [encoded.field(2, connector.SerializeToString()) for connector in connectors]
    rest = config_messages_pb2.ListConnectorsResponse(next_page_token=token).SerializeToString()
    joined = encoded.response(config_messages_pb2.ListConnectorsResponse, *fields, rest)
    assert config_messages_pb2.ListConnectorsResponse.FromString(cast(bytes, joined)) == whole
