"""Tests of the election of the leading herder: one epoch at a time, durable before it is granted, kept when the store
fails over.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.configstore.state.changes import Leadership
from herdmesh.configstore.state.config import leadership_of, next_block, next_epoch
from herdmesh.configstore.state.election import (
    LEASE_MS,
    RETRY_MS,
    RETURN_MS,
    BlockNotWritten,
    BlockWritten,
    CandidateJoined,
    CandidateLeft,
    Election,
    EndSession,
    EpochNotWritten,
    EpochWritten,
    Event,
    HeartbeatReceived,
    Instruction,
    Resigned,
    SendFollowing,
    SendGranted,
    SendHeartbeat,
    SendLost,
    SendReserved,
    Tick,
    WriteBlock,
    WriteEpoch,
    WriterGained,
    WriterLost,
)
from herdmesh.configstore.state.mutations import LeaderToken


class Judge:
    """An election with its clock and the topic to which it writes epochs."""

    def __init__(self, stored: Leadership | None = None) -> None:
        self.election = Election()
        self.stored = stored
        self.now_ms = 1_000_000
        self.tell(WriterGained(stored))

    def tell(self, event: Event) -> Sequence[Instruction]:
        return self.election.handle(event, self.now_ms)

    def join(self, session: int, herder: str, held: LeaderToken | None = None) -> Sequence[Instruction]:
        return self.tell(CandidateJoined(session, herder, f"{herder}:1", held))

    def write(self, wanted: Instruction) -> Sequence[Instruction]:
        """Apply the requested epoch record."""
        assert isinstance(wanted, WriteEpoch)
        self.stored = leadership_of(next_epoch(self.stored, wanted.leader_id, wanted.leader_address))
        return self.tell(EpochWritten(wanted.session, self.stored))

    def wait(self, duration_ms: int, *alive: int) -> list[Instruction]:
        """Advance the time in ticks; the sessions `alive` send heartbeats."""
        said: list[Instruction] = []
        for _ in range(0, duration_ms, 250):
            self.now_ms += 250
            for session in alive:
                said += self.tell(HeartbeatReceived(session))
            said += self.tell(Tick())
        return said


def led_by(herder: str = "a", session: int = 1) -> Judge:
    judge = Judge()
    (wanted,) = judge.join(session, herder)
    (granted,) = judge.write(wanted)
    assert isinstance(granted, SendGranted)
    return judge


def held(judge: Judge) -> LeaderToken:
    assert judge.stored is not None
    return LeaderToken(judge.stored.epoch, judge.stored.leader_id)


def test_the_first_candidate_is_granted_the_first_epoch_once_it_is_written() -> None:
    judge = Judge()
    assert judge.join(1, "a") == [WriteEpoch(1, "a", "a:1")]
    assert judge.join(2, "b") == []  # nobody leads before the record is in the topic
    leadership = Leadership(1, "a", "a:1", 1, 1001)
    assert judge.tell(EpochWritten(1, leadership)) == [SendGranted(1, leadership), SendFollowing(2, leadership)]
    assert judge.election.leader == leadership


def test_heartbeats_keep_the_lease_and_followers_are_told_of_the_leader() -> None:
    judge = led_by("a")
    judge.join(2, "b")
    said = judge.wait(3 * LEASE_MS, 1, 2)
    assert {type(one) for one in said} == {SendHeartbeat, SendFollowing}
    assert held(judge).epoch == 1


def test_a_silent_leader_loses_its_epoch_to_the_longest_waiting_candidate() -> None:
    judge = led_by("a")
    judge.join(2, "b")
    judge.join(3, "c")
    said = judge.wait(LEASE_MS, 2, 3)
    assert [one for one in said if not isinstance(one, SendFollowing)] == [
        SendLost(1, f"no heartbeat for {LEASE_MS} ms"),
        WriteEpoch(2, "b", "b:1"),
    ]
    assert judge.tell(HeartbeatReceived(1)) == []  # too late; it is now in the queue
    granted = judge.write(WriteEpoch(2, "b", "b:1"))
    assert granted[0] == SendGranted(2, Leadership(2, "b", "b:1", 1001, 2001))


def test_a_leader_that_reconnects_within_the_lease_keeps_its_epoch() -> None:
    judge = led_by("a")
    judge.join(2, "b")
    assert judge.tell(CandidateLeft(1)) == []
    judge.wait(RETURN_MS - 500, 2)
    assert judge.stored is not None
    assert judge.join(3, "a", held(judge)) == [SendGranted(3, judge.stored)]
    assert judge.wait(LEASE_MS, 3)[0] == SendHeartbeat(3)


def test_a_leader_whose_stream_broke_is_replaced_sooner_than_a_silent_one() -> None:
    judge = led_by("a")
    judge.join(2, "b")
    judge.tell(CandidateLeft(1))
    assert [one for one in judge.wait(RETURN_MS - 250, 2) if isinstance(one, WriteEpoch)] == []
    assert judge.wait(250, 2)[-1] == WriteEpoch(2, "b", "b:1")


def test_a_broken_stream_gives_a_silent_leader_no_more_time() -> None:
    judge = led_by("a")
    judge.join(2, "b")
    judge.wait(LEASE_MS - 500, 2)
    judge.tell(CandidateLeft(1))
    assert judge.wait(500, 2)[-1] == WriteEpoch(2, "b", "b:1")


def test_a_second_stream_of_the_leader_replaces_the_first() -> None:
    judge = led_by("a")
    assert judge.stored is not None
    assert judge.join(2, "a", held(judge)) == [EndSession(1, not_writer=False), SendGranted(2, judge.stored)]


def test_resigning_hands_over_at_once_and_does_not_elect_the_same_again() -> None:
    judge = led_by("a")
    judge.join(2, "b")
    assert judge.tell(Resigned(held(judge))) == [SendLost(1, "resigned"), WriteEpoch(2, "b", "b:1")]
    judge.write(WriteEpoch(2, "b", "b:1"))
    assert judge.tell(Resigned(LeaderToken(1, "a"))) == []  # the epoch has already ended
    alone = led_by("a")
    assert alone.tell(Resigned(held(alone))) == [SendLost(1, "resigned")]
    assert alone.wait(LEASE_MS, 1) == []


def test_a_new_writer_waits_for_the_incumbent() -> None:
    stored = Leadership(7, "a", "a:1", 6001, 7001)
    judge = Judge(stored)
    assert judge.join(1, "b") == [SendFollowing(1, stored)]
    assert judge.join(2, "a", LeaderToken(7, "a")) == [SendGranted(2, stored)]  # its epoch, without a new record
    assert judge.wait(LEASE_MS, 1, 2)[1] == SendHeartbeat(2)

    alone = Judge(stored)
    alone.join(1, "b")
    assert [one for one in alone.wait(RETURN_MS - 250, 1) if not isinstance(one, SendFollowing)] == []
    assert alone.wait(250, 1)[-1] == WriteEpoch(1, "b", "b:1")
    assert alone.write(WriteEpoch(1, "b", "b:1"))[0] == SendGranted(1, Leadership(8, "b", "b:1", 7001, 8001))


def test_an_incumbent_keeps_its_epoch_after_its_lease_if_nobody_took_over() -> None:
    stored = Leadership(7, "a", "a:1", 6001, 7001)
    judge = Judge(stored)
    judge.wait(2 * LEASE_MS)
    assert judge.join(2, "a", LeaderToken(7, "a")) == [SendGranted(2, stored)]


def test_an_old_epoch_cannot_be_claimed_again() -> None:
    stored = Leadership(7, "a", "a:1", 6001, 7001)
    assert Judge(stored).join(1, "b", LeaderToken(6, "b")) == [SendFollowing(1, stored)]
    assert Judge(stored).join(1, "b", LeaderToken(7, "a")) == [SendFollowing(1, stored)]  # another herder's token


def test_an_incumbent_that_does_not_claim_its_epoch_gets_a_new_one() -> None:
    judge = Judge(Leadership(7, "a", "a:1", 6001, 7001))
    assert judge.join(1, "a") == [WriteEpoch(1, "a", "a:1")]


def test_a_failed_epoch_write_is_retried_later() -> None:
    judge = Judge()
    judge.join(1, "a")
    assert judge.tell(EpochNotWritten(1)) == []
    assert judge.wait(RETRY_MS, 1) == [WriteEpoch(1, "a", "a:1")]


def test_an_epoch_cannot_be_claimed_again_while_a_newer_one_may_have_been_written() -> None:
    """The write of epoch 8 has an unknown outcome: if 8 is in the topic, epoch 7 must not be confirmed."""
    judge = Judge(Leadership(7, "a", "a:1", 6001, 7001))
    judge.join(2, "b")
    assert judge.wait(RETURN_MS, 2)[-1] == WriteEpoch(2, "b", "b:1")
    assert judge.tell(EpochNotWritten(2)) == []
    assert judge.join(1, "a", LeaderToken(7, "a")) == []
    wanted = judge.wait(RETRY_MS, 2)[-1]
    assert isinstance(wanted, WriteEpoch)
    judge.write(wanted)
    assert judge.election.leader is not None
    assert judge.election.leader.epoch > 7


def test_a_candidate_that_left_before_its_grant_leads_nothing() -> None:
    judge = Judge()
    (wanted,) = judge.join(1, "a")
    judge.join(2, "b")
    judge.tell(CandidateLeft(1))
    assert judge.write(wanted) == [WriteEpoch(2, "b", "b:1")]


def test_a_replica_that_no_longer_writes_ends_every_stream() -> None:
    judge = led_by("a")
    judge.join(2, "b")
    assert judge.tell(WriterLost()) == [EndSession(1, not_writer=True), EndSession(2, not_writer=True)]
    assert judge.election.leader is None
    assert judge.join(3, "c") == [EndSession(3, not_writer=True)]
    assert judge.tell(EpochWritten(1, Leadership(2, "a", "a:1", 1001, 2001))) == []


def reserving(judge: Judge, above: int = 1_001, session: int = 1) -> list[Instruction]:
    """Send a heartbeat that requests generations; return the instructions other than its confirmation."""
    said = judge.tell(HeartbeatReceived(session, above))
    assert said[0] == SendHeartbeat(session)
    return list(said[1:])


def extended(judge: Judge) -> Leadership:
    """Apply the requested block to the topic."""
    assert judge.stored is not None
    judge.stored = leadership_of(next_block(judge.stored))
    return judge.stored


def test_a_leader_is_notified_of_the_next_block_once_it_is_written() -> None:
    judge = led_by("a")
    judge.join(2, "b")
    assert reserving(judge) == [WriteBlock(1, LeaderToken(1, "a"), 1_001)]
    assert reserving(judge) == [], "one is on its way"
    assert judge.tell(BlockWritten(extended(judge))) == [SendReserved(1, Leadership(1, "a", "a:1", 1_001, 2_001))]
    assert reserving(judge) == [SendReserved(1, Leadership(1, "a", "a:1", 1_001, 2_001))], "told again, not written"
    assert judge.election.leader == Leadership(1, "a", "a:1", 1_001, 2_001)
    assert reserving(judge, above=2_001) == [WriteBlock(1, LeaderToken(1, "a"), 2_001)]


def test_only_the_leader_gets_a_block() -> None:
    judge = led_by("a")
    judge.join(2, "b")
    assert judge.stored is not None
    assert judge.tell(HeartbeatReceived(2, 1_001)) == [SendFollowing(2, judge.stored)]


def test_a_block_that_was_not_written_is_requested_with_the_next_heartbeat() -> None:
    judge = led_by("a")
    assert reserving(judge)
    assert judge.tell(BlockNotWritten()) == []
    assert reserving(judge) == [WriteBlock(1, LeaderToken(1, "a"), 1_001)]


def test_a_block_whose_leader_was_disconnected_is_granted_when_it_reconnects() -> None:
    judge = led_by("a")
    assert reserving(judge)
    judge.tell(CandidateLeft(1))
    stored = extended(judge)
    assert judge.tell(BlockWritten(stored)) == []
    assert judge.join(2, "a", held(judge)) == [SendGranted(2, stored)]


def test_a_block_written_before_a_fail_over_is_granted_by_the_next_writer() -> None:
    judge = led_by("a")
    assert reserving(judge)
    stored = extended(judge)
    judge.tell(WriterLost())
    after = Judge(stored)
    assert after.join(1, "a", LeaderToken(1, "a")) == [SendGranted(1, stored)]
    assert after.election.leader is not None
    assert after.election.leader.generation_limit == 2_001


def test_the_next_epoch_begins_where_the_last_block_ends() -> None:
    judge = led_by("a")
    assert reserving(judge)
    late = extended(judge)
    judge.join(2, "b")
    judge.tell(Resigned(held(judge)))
    granted = judge.write(WriteEpoch(2, "b", "b:1"))
    assert granted[0] == SendGranted(2, Leadership(2, "b", "b:1", 2_001, 3_001))
    assert judge.tell(BlockWritten(late)) == [], "of an epoch that is over"
    assert judge.election.leader == judge.stored


def test_a_pause_of_the_store_does_not_count_against_the_herders() -> None:
    judge = led_by("a")
    judge.join(2, "b")
    judge.now_ms += 60_000  # stopped and continued
    assert judge.tell(Tick()) == []
    assert judge.tell(HeartbeatReceived(1)) == [SendHeartbeat(1)]


_EVENTS = st.lists(
    st.tuples(st.sampled_from(["join", "join held", "beat", "leave", "resign", "tick", "fail over", "write", "fail"]),
              st.integers(0, 2), st.integers(0, 5000)),
    max_size=60,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(steps=_EVENTS)
def test_epochs_rise_and_each_is_granted_to_one_herder(steps: list[tuple[str, int, int]]) -> None:
    judge = Judge()
    sessions = iter(range(1, 10_000))
    latest: dict[int, int] = {}
    wanted: list[WriteEpoch] = []
    granted: list[Leadership] = []

    def heed(instructions: Sequence[Instruction]) -> None:
        wanted.extend(one for one in instructions if isinstance(one, WriteEpoch))
        assert len(wanted) <= 1, "one record on its way at a time"
        granted.extend(one.leadership for one in instructions if isinstance(one, SendGranted))

    for step, herder, passed_ms in steps:
        judge.now_ms += passed_ms
        token = held(judge) if judge.stored is not None and step == "join held" else None
        match step:
            case "join" | "join held":
                latest[herder] = next(sessions)
                heed(judge.join(latest[herder], f"h{herder}", token))
            case "beat" if herder in latest:
                heed(judge.tell(HeartbeatReceived(latest[herder])))
            case "leave" if herder in latest:
                heed(judge.tell(CandidateLeft(latest[herder])))
            case "resign" if judge.stored is not None:
                heed(judge.tell(Resigned(held(judge))))
            case "fail over":
                wanted.clear()
                judge.tell(WriterLost())
                judge.election = Election()
                heed(judge.tell(WriterGained(judge.stored)))
            case "write" if wanted:
                heed(judge.write(wanted.pop()))
            case "fail" if wanted:
                heed(judge.tell(EpochNotWritten(wanted.pop().session)))
            case _:
                heed(judge.tell(Tick()))
    epochs = [one.epoch for one in granted]
    assert epochs == sorted(epochs)
    assert len({(one.epoch, one.leader_id) for one in granted}) == len(set(epochs))
    blocks = sorted({(one.generation_first, one.generation_limit) for one in granted})
    assert all(left[1] <= right[0] for left, right in pairwise(blocks))
