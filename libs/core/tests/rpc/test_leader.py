"""The client's search for the leader: hints are followed at once, with backoff, and never the silent address twice
while there is another.
"""

from __future__ import annotations

import pytest

from herdmesh.rpc.leader import PAUSE_S_FIRST, PAUSE_S_MAX, LeaderSearch


def test_a_leader_hint_is_followed_at_once() -> None:
    search = LeaderSearch("f:1, g:1")
    assert search.address == "f:1"
    assert search.follows("leader:1") == 0
    assert search.address == "leader:1"


def test_herders_that_name_each_other_are_tried_with_backoff() -> None:
    search = LeaderSearch("a:1")
    assert search.follows("b:1") == 0
    pauses = [search.follows("a:1" if turn % 2 else "b:1") for turn in range(1, 12)]
    assert all(PAUSE_S_FIRST / 2 <= one <= PAUSE_S_MAX for one in pauses)
    assert pauses[-1] >= PAUSE_S_MAX / 2


def test_a_follower_that_names_a_dead_leader_is_retried_with_backoff() -> None:
    search = LeaderSearch("f:1")
    waited = [search.follows("dead:1") + search.unanswered() for _ in range(8)]
    assert search.address == "f:1"
    assert all(waited)
    assert max(waited) <= PAUSE_S_MAX


def test_after_an_unanswered_call_another_address_is_tried_first() -> None:
    search = LeaderSearch("f:1,leader:1")
    search.follows("leader:1")
    search.reached()
    search.unanswered()
    assert search.address == "f:1"  # not the next in the list, which is the silent address
    search.unanswered()
    assert search.address == "leader:1"


def test_a_single_address_is_retried() -> None:
    search = LeaderSearch("only:1")
    assert search.follows("only:1") > 0
    assert search.unanswered() > 0
    assert search.address == "only:1"


def test_a_response_resets_the_backoff() -> None:
    search = LeaderSearch("a:1")
    for _ in range(10):
        search.again()
    search.reached()
    assert search.again() <= PAUSE_S_FIRST


def test_an_empty_list_of_addresses_is_an_error() -> None:
    with pytest.raises(ValueError, match="no address"):
        LeaderSearch(" , ")
