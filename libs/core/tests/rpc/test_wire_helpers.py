"""Wire conversions of revisions, properties and lists of settings: each survives the round trip."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.api.common.v1 import revision_pb2
from herdmesh.rpc import properties, revisions
from herdmesh.rpc.settings import name_value_pairs
from herdmesh.topicstore.contract import Revision

_revisions = st.builds(
    Revision,
    st.text(min_size=1, alphabet=st.characters(codec="utf-8")),
    st.lists(st.integers(0, 2**62)).map(tuple),
)
_values = st.one_of(
    st.none(), st.text(alphabet=st.characters(codec="utf-8")), st.just(properties.JsonValue('{"a":[1,null]}'))
)


@given(_revisions)
def test_revisions_survive_the_round_trip(revision: Revision) -> None:
    assert revisions.from_proto(revisions.to_proto(revision)) == revision
    assert revisions.from_text(revisions.to_text(revision)) == revision
    assert revisions.from_proto(revisions.meta(revision).revision) == revision


def test_a_missing_revision_is_none() -> None:
    assert revisions.from_proto(revision_pb2.Revision()) is None
    assert revisions.from_text(revisions.to_text(None)) is None
    assert not revisions.meta(None).HasField("revision")
    with pytest.raises(ValueError, match="not a revision"):
        revisions.from_text("12")


@given(st.dictionaries(st.text(alphabet=st.characters(codec="utf-8")), _values))
def test_properties_survive_the_round_trip(given_properties: dict[str, properties.PropertyValue]) -> None:
    assert properties.from_proto(properties.to_proto(given_properties)) == given_properties


_names = st.text(min_size=1, alphabet="abcdefghijklmnopqrstuvwxyz.")
_texts = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\\")).map(str.strip)


@given(st.dictionaries(_names, _texts))
def test_lists_of_settings_survive_the_round_trip(pairs: dict[str, str]) -> None:
    written = ",".join(f"{name}={value}".replace(",", "\\,") for name, value in pairs.items())
    assert name_value_pairs(written) == pairs


@pytest.mark.parametrize("text", ["x", "a=1,x", "=1"])
def test_invalid_list_of_settings_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="name=value"):
        name_value_pairs(text)
