"""Session keys of Connect's internal requests: created when there is none, when the key has expired or when another
kind is configured (docs/reference/connect/herder.md, section 6.3), by the leader alone, and once.
"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from herdmesh.api.configstore.v1 import config_pb2
from herdmesh.herder.settings import HerderSettings
from herdmesh.herder.state import Rules
from herdmesh.herder.state.model import SessionKey
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.wire import stores as wire
from herdmesh.rpc.errors import WriteOutcomeUnknown
from services.herder.tests.world import World
from services.herder.tests.world_store import revision

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
#: the default is an hour.
OF_A_MINUTE = Rules(herder_id="h1", session_key_ttl_ms=MINUTE_MS)
OURS = ("HmacSHA256", 32)


def leader(*keys: tuple[str, int, int], rules: Rules | None = None) -> World:
    """A world whose store has these keys, the last one in force, and whose herder has just been elected."""
    world = World(rules=rules)
    world.config.keys = list(keys)
    world.config.offset = len(keys)
    world.lead()
    world.advance(500)
    return world


def made(world: World) -> list[tuple[str, int]]:
    return [(algorithm, size_bytes) for algorithm, size_bytes, _ in world.config.keys]


def test_a_leader_creates_a_missing_key() -> None:
    world = leader()
    assert made(world) == [OURS]
    world.advance(60_000)
    assert made(world) == [OURS]


def test_an_expired_key_is_replaced() -> None:
    world = leader((*OURS, 1_000 - HOUR_MS + 10_000))  # an hour old in ten seconds
    assert len(world.config.keys) == 1
    world.advance(9_000)
    assert len(world.config.keys) == 1
    world.advance(1_000)
    assert made(world) == [OURS, OURS]
    world.advance(HOUR_MS)
    assert len(world.config.keys) == 3


def test_a_change_of_leader_rotates_no_key() -> None:
    world = leader()
    world.kill_herder()
    world.lead()
    world.advance(1_000)
    assert len(world.config.keys) == 1


def test_a_time_to_live_of_0_never_expires() -> None:
    world = leader((*OURS, -100 * HOUR_MS), rules=Rules(session_key_ttl_ms=0))
    world.advance(MINUTE_MS)
    assert len(world.config.keys) == 1


@pytest.mark.parametrize("other", [("HmacSHA1", 32), ("HmacSHA256", 64), ("HmacSHA256", 16)])
def test_a_key_of_another_kind_is_replaced_at_once(other: tuple[str, int]) -> None:
    assert made(leader((*other, 900))) == [other, OURS]


def test_a_newly_configured_kind_replaces_the_key() -> None:
    rules = Rules(session_key_algorithm="HmacSHA512", session_key_bytes=64)
    assert made(leader((*OURS, 900), rules=rules)) == [OURS, ("HmacSHA512", 64)]


def test_a_key_written_by_another_process_counts() -> None:
    world = leader(rules=OF_A_MINUTE)
    world.advance(MINUTE_MS - 10_000)
    world.config.keys.append((*OURS, world.now))
    world.post(ev.SessionKeyRecorded(SessionKey(*OURS, age_ms=0), revision(world.config.offset + 1)))
    world.advance(MINUTE_MS - 1_000)
    assert len(world.config.keys) == 2
    world.advance(2_000)
    assert len(world.config.keys) == 3


def test_a_follower_creates_no_key() -> None:
    world = World()
    world.post(ev.ConfigSnapshot([], revision(1), 0))
    world.advance(10_000)
    assert world.config.keys == []


def test_one_rotation_is_under_way_and_a_failed_one_is_retried() -> None:
    world = World()
    world.store_down = True  # writes are neither done nor refused
    world.lead()
    world.run()
    sent = [
        instruction
        for _ in range(50)
        for instruction in world.herder.handle(ev.Tick(), world.now)
        if isinstance(instruction, ins.RotateSessionKey)
    ]
    assert len(sent) == 1
    world = leader()
    world.config.keys.clear()
    world.config.epoch += 1  # another herder leads by now, and this one does not know
    world.post(ev.SessionKeyRecorded(SessionKey("HmacSHA1", 1, 0), revision(world.config.offset)))
    world.advance(3_500)
    assert world.config.keys == []  # refused again every second
    world.config.epoch -= 1
    world.advance(1_100)
    assert made(world) == [OURS]


def test_a_new_leader_replaces_an_expired_key() -> None:
    world = World()
    world.config.keys = [(*OURS, world.now - 2 * HOUR_MS)]
    old = SessionKey(*OURS, age_ms=2 * HOUR_MS)
    world.post(ev.LeadershipFollowing("h2", "there:1", 1))
    world.post(ev.ConfigSnapshot([], revision(1), 1, old))
    world.advance(10_000)
    assert len(world.config.keys) == 1
    world.config.epoch, world.config.offset = 2, 2
    world.post(ev.EpochRecorded(2, revision(2)))
    world.post(ev.LeadershipGranted(2, 2_000, 3_000, 10**12, "h1", "here:1"))
    world.advance(1_000)
    assert made(world) == [OURS, OURS]


def test_a_former_leader_rotates_no_key() -> None:
    world = leader(rules=OF_A_MINUTE)
    world.post(ev.LeadershipFollowing("h2", "there:1", 2))
    world.advance(3 * MINUTE_MS)
    assert len(world.config.keys) == 1


def test_a_key_whose_write_failed_but_was_read_back_is_not_written_twice() -> None:
    world = World()
    world.store_down = True
    world.lead()
    world.run()
    sent = [item for item in world.herder.handle(ev.Tick(), world.now) if isinstance(item, ins.RotateSessionKey)]
    world.store_down = False
    world.config.keys.append((*OURS, world.now))
    world.post(ev.WriteFailed(sent[0].op, WriteOutcomeUnknown("nobody knows")))
    world.post(ev.SessionKeyRecorded(SessionKey(*OURS, age_ms=0), world.config.next()))
    world.advance(60_000)
    assert len(world.config.keys) == 1


def test_the_state_has_no_bytes_of_a_key() -> None:
    message = config_pb2.SessionKey(key=b"secret-bytes", algorithm="HmacSHA256")
    message.create_time.FromMilliseconds(1_000)
    assert wire.session_key(message, 61_000) == SessionKey("HmacSHA256", 12, 60_000)
    rotate = ins.RotateSessionKey(1, "HmacSHA512", 64, 7)
    request = wire.put_session_key(rotate, "r1", "herder-1", b"k" * 64, 5_000)
    assert (request.options.leader.epoch, request.options.leader.leader_id) == (7, "herder-1")
    assert (len(request.session_key.key), request.session_key.algorithm) == (64, "HmacSHA512")
    assert request.session_key.create_time.ToMilliseconds() == 5_000


def test_session_key_settings_are_javas() -> None:
    assert HerderSettings.load([]).rules("h").session_key_bytes == 32
    rules = HerderSettings.load(["--inter-worker-key-generation-algorithm", "HmacSHA1"]).rules("h")
    assert (rules.session_key_algorithm, rules.session_key_bytes) == ("HmacSHA1", 64)
    assert HerderSettings.load(["--inter-worker-key-size", "41"]).rules("h").session_key_bytes == 6
    for wrong in (
        ["--inter-worker-key-size", "39"],
        ["--inter-worker-key-generation-algorithm", "AES"],
        ["--inter-worker-key-ttl-ms", "-1"],
    ):
        with pytest.raises(ValidationError) as error:
            HerderSettings.load(wrong)
        assert error.value.errors()[0]["loc"][0] == wrong[0].lstrip("-").replace("-", "_")
