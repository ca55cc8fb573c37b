"""The writer's keep-alive record, without effect on either store's state."""

from __future__ import annotations

from herdmesh.configstore.state.config import ConfigState
from herdmesh.statusstore.state.statuses import StatusState
from herdmesh.topicstore import KEEP_ALIVE_KEY, StoredRecord

_VALUES = (b'{"version":1}', b"whatever a later version says", None)
_STRANGER = StoredRecord("topic", 0, 8, b"herdmesh-stranger", b"{}", 1)


def test_the_config_store_neither_counts_nor_reports_a_keep_alive() -> None:
    state = ConfigState("topic-audit")
    for value in _VALUES:
        assert list(state.apply(StoredRecord("topic", 0, 7, KEEP_ALIVE_KEY, value, 1))) == []
        assert list(state.apply(StoredRecord("topic-audit", 0, 7, KEEP_ALIVE_KEY, value, 1))) == []
    assert (state.refused.count, state.stored()) == (0, [])
    state.apply(_STRANGER)
    assert state.refused.count == 1


def test_the_status_store_neither_counts_nor_reports_a_keep_alive() -> None:
    state = StatusState()
    for value in _VALUES:
        assert list(state.apply(StoredRecord("topic", 0, 7, KEEP_ALIVE_KEY, value, 1))) == []
    assert (state.undecodable_count, state.statuses()) == (0, [])
    state.apply(_STRANGER)
    assert state.undecodable_count == 1
