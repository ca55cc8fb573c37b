"""The checker of status put rules: it accepts a correct history, and finds each kind of violation."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.support.history import History, Kind, Outcome
from tests.support.status_rules import SentPut, judge
from tests.support.store_checks import Logged, StoreLog, check


@dataclass
class Told:
    """A history and its log, put by put; every put takes one tick, and follows the one before."""

    history: History = field(init=False)
    log: StoreLog = field(default_factory=StoreLog)
    sent: list[SentPut] = field(default_factory=lambda: list[SentPut]())

    def __post_init__(self) -> None:
        self._now = 0.0
        self.history = History(self._tick)

    def _tick(self) -> float:
        self._now += 1.0
        return self._now

    def put(
        self,
        worker: str,
        generation: int,
        sequence: int = 0,
        *,
        key: str = "c/0",
        batch: str = "",
        process: str = "1",
        safe: bool = False,
        alone: bool = False,
        refusal: str = "",
        written: bool = True,
    ) -> SentPut:
        value = f"v{len(self.sent)}"
        operation = self.history.invoke(worker, key, Kind.PUT, value=value)
        incarnation = f"{worker}-{process}" if process else ""
        put = SentPut(
            operation, batch or value, worker, incarnation, generation, sequence, safe=safe, alone=alone,
            refusal=refusal,
        )  # fmt: skip
        self.history.finish(operation, Outcome.NOT_APPLIED if refusal else Outcome.OK)
        if written and not refusal:
            self.log.writes.append(Logged(key, value, 0, len(self.log.writes)))
            put.acknowledged = (len(self.log.writes),)
        self.sent.append(put)
        return put

    def checks(self) -> set[str]:
        """The names of the findings."""
        found = [*check(self.history, self.log), *judge(self.sent, self.log)]
        return {violation.check for violation in found}


@pytest.fixture
def told() -> Told:
    """Two workers that took turns by the rules, with justified refusals."""
    story = Told()
    story.put("a", 1, 1)
    story.put("a", 1, 2, key="own/0", batch="b", alone=True)
    story.put("a", 1, 2, key="own/1", batch="b", alone=True)
    story.put("b", 2, 1)
    story.put("a", 1, 3, refusal="STALE_GENERATION")
    story.put("a", 1, 4, safe=True, refusal="STATUS_NEWER")
    story.put("b", 1, process="", safe=True)  # the leader for the gone worker: the same worker's status
    story.put("a", 1, 6)  # over a status of no known process
    story.put("a", 1, 5, refusal="SUPERSEDED").operation.returned = 100.0
    story.put("b", 2, 9, safe=True)
    return story


def test_a_correct_history_has_no_violation_of_put_rules(told: Told) -> None:
    assert told.checks() == set()


def test_refusing_a_report_of_a_gone_worker_over_a_newer_report_is_no_violation() -> None:
    """Of a key no worker has written yet."""
    told = Told()
    told.put("a", 5, process="", safe=True)
    told.put("b", 1, process="", safe=True, refusal="STATUS_NEWER")
    assert told.checks() == set()
    told.put("a", 1, process="", safe=True, refusal="STATUS_NEWER")
    assert told.checks() == {"refusals"}


def test_an_older_generation_over_a_newer_one_is_found(told: Told) -> None:
    told.put("a", 1, 20)
    assert told.checks() == {"generations"}


def test_an_older_generation_of_a_restarted_worker_with_the_same_id_is_found(told: Told) -> None:
    told.put("b", 1, 1, process="2")
    assert told.checks() == {"generations"}


def test_a_safe_put_over_a_newer_status_of_another_worker_is_found(told: Told) -> None:
    told.put("a", 1, 20, safe=True)
    assert told.checks() == {"putSafe"}


def test_an_abandoned_put_applied_after_a_later_one_is_found(told: Told) -> None:
    told.put("b", 2, 3)
    assert told.checks() == {"sequence"}


def test_a_lost_acknowledged_status_is_found(told: Told) -> None:
    told.put("b", 2, 20, written=False)
    assert "S2 acknowledged writes are there" in told.checks()


def test_a_status_written_twice_is_found(told: Told) -> None:
    last = told.log.writes[-1]
    told.log.writes.append(Logged(last.key, last.value, 0, last.offset + 1))
    assert "S8 applied once" in told.checks()


def test_a_refused_status_that_was_written_is_found(told: Told) -> None:
    put = told.put("a", 1, 20, refusal="STALE_GENERATION")
    told.log.writes.append(Logged("c/0", put.operation.value, 0, len(told.log.writes)))
    assert {"S6 not applied means never", "generations"} <= told.checks()


def test_half_a_batch_is_found(told: Told) -> None:
    told.put("a", 1, 20, key="own/0", batch="torn", alone=True)
    half = told.put("a", 1, 20, key="own/1", batch="torn", alone=True, written=False)
    half.operation.outcome = Outcome.UNKNOWN
    assert told.checks() == {"a batch is one"}


@pytest.mark.parametrize("refusal", ["STALE_GENERATION", "STATUS_NEWER", "SUPERSEDED", "REVISION_MISMATCH"])
def test_an_unjustified_refusal_is_found(told: Told, refusal: str) -> None:
    told.put("b", 2, 20, refusal=refusal)
    assert told.checks() == {"refusals"}


def test_an_answer_whose_revision_lacks_its_own_write_is_found(told: Told) -> None:
    put = told.put("b", 2, 20)
    put.acknowledged = (len(told.log.writes) - 1,)
    assert told.checks() == {"S1 read your writes"}
