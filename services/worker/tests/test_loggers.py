"""Logger levels of a worker: Python's, under Java's names, as Connect's admin API lists and changes them."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator

import pytest
import structlog

from herdmesh.rpc.process import configure_logging
from herdmesh.worker.run import loggers
from herdmesh.worker.run.loggers import Loggers

FOO, BAR, OTHER = "test.loggers.foo", "test.loggers.foo.bar", "test.other"


@pytest.fixture
def here() -> Iterator[Loggers]:
    """Three loggers without levels of their own; all levels, which a change of the root's sets, are restored."""
    root = logging.getLogger()
    before, handlers = root.level, root.handlers[:]
    others = {one: one.level for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)}
    root.setLevel(logging.INFO)
    for name in (FOO, BAR, OTHER):
        logging.getLogger(name).setLevel(logging.NOTSET)
    yield Loggers()
    for name in (FOO, BAR, OTHER, "test.loggers"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    for one, level in others.items():
        one.setLevel(level)
    root.setLevel(before)
    root.handlers[:] = handlers


def levels(here: Loggers, prefix: str = "test.") -> dict[str, str]:
    return {entry.logger: entry.level for entry in here.listed(prefix)}


def test_a_list_of_all_has_the_root_and_loggers_with_their_own_level(here: Loggers) -> None:
    logging.getLogger(OTHER).setLevel(logging.ERROR)
    found = {entry.logger: entry.level for entry in here.listed("")}
    assert (found["root"], found[OTHER]) == ("INFO", "ERROR")
    assert FOO not in found
    assert list(found) == sorted(found)


def test_a_list_by_name_has_the_level_in_force(here: Loggers) -> None:
    assert levels(here, FOO) == {FOO: "INFO", BAR: "INFO"}
    assert levels(here, "nobody.has.this") == {}
    assert not here.listed(FOO)[0].HasField("modify_time")


def test_a_level_is_set_for_a_logger_and_everything_below(here: Loggers) -> None:
    changed = here.set_level("test.loggers", "debug")
    assert [entry.logger for entry in changed] == ["test.loggers", FOO, BAR]
    assert levels(here)[OTHER] == "INFO"
    assert all(entry.HasField("modify_time") for entry in changed)
    assert logging.getLogger(BAR).isEnabledFor(logging.DEBUG)
    assert logging.getLogger("test.loggers.late").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger(OTHER).isEnabledFor(logging.DEBUG)


def test_only_changed_levels_are_returned_and_dated(here: Loggers) -> None:
    here.set_level(BAR, "WARN")
    dated = here.listed(BAR)[0].modify_time.ToMilliseconds()
    assert [entry.logger for entry in here.set_level(FOO, "WARN")] == [FOO]
    assert here.listed(BAR)[0].modify_time.ToMilliseconds() == dated


def test_setting_the_root_in_any_case_sets_all_loggers(here: Loggers) -> None:
    logging.getLogger(OTHER).setLevel(logging.ERROR)
    assert {"root", OTHER} <= {entry.logger for entry in here.set_level("ROOT", "WARN")}
    assert levels(here)[OTHER] == "WARN"
    assert logging.getLogger().level == logging.WARNING


@pytest.mark.parametrize(("level", "number"), [("TRACE", 5), ("FATAL", 50), ("OFF", 60), ("ALL", 1)])
def test_java_levels_unknown_to_python_are_set_and_listed(here: Loggers, level: str, number: int) -> None:
    here.set_level(FOO, level)
    assert logging.getLogger(FOO).level == number
    assert here.listed(FOO)[0].level == level
    assert logging.getLogger(FOO).isEnabledFor(logging.CRITICAL) == (level != "OFF")


def test_a_level_unknown_to_java_is_refused(here: Loggers) -> None:
    with pytest.raises(ValueError, match=r"use one of ALL, TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF"):
        here.set_level(FOO, "LOUD")


def test_structlog_lines_follow_the_level(here: Loggers, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    log: structlog.stdlib.BoundLogger = structlog.get_logger(FOO)
    log.debug("unseen")
    here.set_level("test.loggers", "DEBUG")
    log.debug("seen")
    here.set_level("test.loggers", "OFF")
    log.critical("switched_off")
    written = capsys.readouterr().err
    assert [event in written for event in ("unseen", "seen", "switched_off")] == [False, True, False]


def test_runs_get_the_changed_levels(here: Loggers) -> None:
    logging.getLogger(OTHER).setLevel(logging.ERROR)
    here.set_level(FOO, "DEBUG")
    changed = here.changed()
    assert changed == {FOO: logging.DEBUG, BAR: logging.DEBUG}
    logging.getLogger(FOO).setLevel(logging.NOTSET)
    level = logging.getLogger().level
    with loggers.applied({**changed, "root": logging.ERROR}):
        assert logging.getLogger(FOO).level == logging.DEBUG
        assert logging.getLogger().level == logging.ERROR
    assert (logging.getLogger(FOO).level, logging.getLogger().level) == (logging.NOTSET, level)


def test_the_kafka_clients_of_runs_have_loggers_before_any_run(here: Loggers) -> None:
    """`herd set-logger` refuses a name that no worker has."""
    importlib.import_module("herdmesh.worker.effects.stores.commands")  # imported by every worker
    assert [entry.logger for entry in here.listed("librdkafka.")] == [
        "librdkafka.admin",
        "librdkafka.consumer",
        "librdkafka.producer",
    ]
