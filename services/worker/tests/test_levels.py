"""Log levels from the leader are set once each: of the cluster by revision, of this worker alone by request id."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import ConfigError
from herdmesh.session.worker_commands import SetLogger
from herdmesh.topicstore.contract import Revision
from herdmesh.worker.run.loggers import Loggers
from herdmesh.worker.state.levels import REMEMBERED_MAX, Levels

LOGGER = "test.levels"


@pytest.fixture
def here() -> Iterator[Loggers]:
    yield Loggers()
    logging.getLogger(LOGGER).setLevel(logging.NOTSET)


def at(offset: int, store: str = "store") -> Revision:
    return Revision(store, (offset,))


def changed(here: Loggers, question: SetLogger) -> list[str]:
    return [entry.logger for entry in here.carry_out(question)]


def in_force() -> int:
    return logging.getLogger(LOGGER).level


def test_a_cluster_level_is_set_once_and_a_repeat_has_the_first_reply(here: Loggers) -> None:
    debug = SetLogger(LOGGER, "DEBUG", at(5))
    assert here.revision is None
    assert changed(here, debug) == [LOGGER]
    assert here.revision == at(5)
    assert changed(here, SetLogger(LOGGER, "ERROR")) == [LOGGER], "its own, set since"
    assert changed(here, debug) == [LOGGER]
    assert in_force() == logging.ERROR
    assert here.revision == at(5)


def test_an_older_cluster_level_changes_nothing(here: Loggers) -> None:
    changed(here, SetLogger(LOGGER, "DEBUG", at(5)))
    assert changed(here, SetLogger(LOGGER, "ERROR", at(4))) == []
    assert (in_force(), here.revision) == (logging.DEBUG, at(5))


def test_a_cluster_level_of_another_store_is_set(here: Loggers) -> None:
    """The config topic was recreated: its offsets are not comparable with those of the older one."""
    changed(here, SetLogger(LOGGER, "DEBUG", at(5)))
    assert changed(here, SetLogger(LOGGER, "ERROR", at(4, "another"))) == [LOGGER]
    assert (in_force(), here.revision) == (logging.ERROR, at(4, "another"))


def test_a_level_of_one_worker_is_set_once_per_request_id(here: Loggers) -> None:
    debug = SetLogger(LOGGER, "DEBUG", request_id="r1")
    assert changed(here, debug) == [LOGGER]
    assert changed(here, SetLogger(LOGGER, "ERROR", at(5))) == [LOGGER]
    assert changed(here, debug) == [LOGGER]
    assert in_force() == logging.ERROR
    for _ in range(2):
        assert changed(here, SetLogger(LOGGER, "DEBUG")) == [LOGGER], "without an id it is no repeat"
        changed(here, SetLogger(LOGGER, "ERROR"))


def test_a_request_id_reused_for_another_level_is_refused_with_the_first_level(here: Loggers) -> None:
    changed(here, SetLogger(LOGGER, "DEBUG", request_id="r1"))
    with pytest.raises(ConfigError, match=f"r1 was used for {LOGGER}=DEBUG") as refused:
        changed(here, SetLogger(LOGGER, "ERROR", request_id="r1"))
    assert refused.value.field == "request_id"
    assert in_force() == logging.DEBUG


def test_a_cluster_level_unknown_to_java_is_refused_once(here: Loggers) -> None:
    """Any writer of the config topic may write one, and it stays invalid."""
    with pytest.raises(ValueError, match="invalid log level"):
        here.carry_out(SetLogger(LOGGER, "LOUD", at(5)))
    assert here.revision == at(5)
    assert changed(here, SetLogger(LOGGER, "LOUD", at(5))) == []


def test_a_repeated_cluster_level_is_recognised_by_its_request_id() -> None:
    """A later level is newer, and so is the revision of the command that asks for the first one's changes."""
    levels = Levels()
    levels.carried_out(SetLogger("a", "DEBUG", at(3), "r1"), ["a", "a.b"])
    levels.carried_out(SetLogger("a", "ERROR", at(4)), ["a"])
    assert levels.changed_before(SetLogger("a", "DEBUG", at(4), "r1")) == ("a", "a.b")


def test_remembered_levels_are_bounded_and_the_newest_stays() -> None:
    levels = Levels()
    for number in range(REMEMBERED_MAX + 1):
        levels.carried_out(SetLogger("a", "DEBUG", request_id=f"r{number}"), ["a"])
    assert levels.changed_before(SetLogger("a", "DEBUG", request_id="r0")) is None
    assert levels.changed_before(SetLogger("a", "DEBUG", request_id="r1")) == ("a",)
    levels.carried_out(SetLogger("a", "DEBUG", at(1)), ["a"])
    for number in range(REMEMBERED_MAX):
        levels.carried_out(SetLogger("a", "DEBUG", request_id=f"s{number}"), ["a"])
    assert levels.changed_before(SetLogger("a", "DEBUG", at(1))) == (), "heard, although not what it changed"


@given(st.lists(st.integers(1, 20), max_size=30))
def test_the_newest_level_is_in_force_whatever_is_repeated(told: list[int]) -> None:
    levels, done = Levels(), list[int]()
    for offset in told:
        question = SetLogger("a", str(offset), at(offset))
        if levels.changed_before(question) is None:
            levels.carried_out(question, ["a"])
            done.append(offset)
    assert done == sorted(set(done))
    assert done[-1:] == ([max(told)] if told else [])
