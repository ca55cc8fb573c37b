"""Constants that two services must agree on, and neither may import from the other."""

from __future__ import annotations

from herdmesh.configstore.state import election
from herdmesh.herder.state.handlers import leadership_changes


def test_herders_and_the_config_store_agree_on_the_leaders_lease() -> None:
    """A new leader waits for workers that the leader before it may have kept until its lease was over."""
    assert leadership_changes.EPOCH_LEASE_MS == election.LEASE_MS
