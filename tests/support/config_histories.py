"""Histories of a config topic for hypothesis: writes of ours and of Java, restarts and passes of the log cleaner.

Owns the strategies and the playing of a history in a `World`. Names are chosen to look like each other's task keys.
Invariant: every step can be played in every world: a refused step is refused on all replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from hypothesis import strategies as st

from herdmesh.configstore.state.mutations import (
    CommitTaskConfigs,
    DeleteConnector,
    Mutation,
    PutConnectorConfig,
    PutLoggerLevel,
    PutSessionKey,
    PutTaskCount,
    RequestRestart,
    SetTargetState,
)
from herdmesh.connect.json_text import jackson
from herdmesh.connect.topics import config_topic
from herdmesh.connect.topics.config_records import (
    CommitRecord,
    ConnectorRecord,
    LoggerRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from herdmesh.connect.topics.decoding import Tombstone
from herdmesh.topicstore.contract import KEEP_ALIVE_KEY
from tests.support.config_world import Java, World

Step = Callable[[World], None]

#: The first most often, so that much happens to one connector.
NAMES = st.sampled_from(["c", "c", "c", "c", "c-1", "c-1", "c-1-0", "-"])
_VALUES = st.sampled_from("xyz")
_STATES = st.sampled_from(list(TargetState))
_CONFIGS = st.fixed_dictionaries({"v": _VALUES})
_TASK = st.fixed_dictionaries({"t": _VALUES})
_TASKS = st.sampled_from([0, 1, 1, 2, 2, 3]).flatmap(lambda count: st.lists(_TASK, min_size=count, max_size=count))
_GENERATIONS = st.sampled_from([None, 0, 1, 2])
_KEYS = st.builds(SessionKeyRecord, st.sampled_from([b"one", b"two"]), st.just("HmacSHA256"), st.integers(0, 3))
_LEVELS = st.builds(LoggerRecord, st.just("root"), st.sampled_from(["DEBUG", "INFO"]))
_RESTARTS = st.builds(RestartRecord, NAMES, st.booleans(), st.booleans())
_FRACTIONS = st.just(1.0) | st.floats(0, 1)
_SEEDS = st.integers(0, 2**16)

T = TypeVar("T")


def _one_kind_of(*kinds: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """Each kind with equal probability, where `one_of` counts the branches of each as kinds of their own."""
    return st.integers(0, len(kinds) - 1).flatmap(lambda number: kinds[number])


#: A change of a connector whose name is still open.
_Change = Callable[[str], Mutation]
_CHANGES: st.SearchStrategy[_Change] = st.one_of(
    st.builds(partial, st.just(PutConnectorConfig), config=_CONFIGS, initial_target_state=st.none() | _STATES),
    st.builds(partial, st.just(CommitTaskConfigs), tasks=_TASKS, fenced_generation=_GENERATIONS),
    st.builds(partial, st.just(SetTargetState), target_state=_STATES),
    st.builds(partial, st.just(PutTaskCount), task_count=st.integers(0, 3)),
    st.sampled_from([DeleteConnector]),
)
_OTHERS: st.SearchStrategy[Mutation] = st.one_of(
    st.builds(RequestRestart, _RESTARTS), st.builds(PutSessionKey, _KEYS), st.builds(PutLoggerLevel, _LEVELS)
)


def _java_tasks(name: str, tasks: Sequence[dict[str, str]], missing: int | None, commit: bool) -> list[Java]:
    """Records of Java's leader; `missing` is left out, `commit` false is a leader that died before it."""
    records: list[Java] = [
        TaskConfigRecord(name, number, task) for number, task in enumerate(tasks) if number != missing
    ]
    return [*records, CommitRecord(name, len(tasks))] if commit else records


def _java_deletes(name: str, backwards: bool, again: dict[str, str] | None) -> list[Java]:
    gone: list[Java] = [Tombstone("connector", name), Tombstone("target-state", name)]
    if backwards:
        gone.reverse()
    return gone if again is None else [*gone, ConnectorRecord(name, again)]


def _legacy_state(name: str, state: str) -> list[Java]:
    return [(config_topic.target_state_key(name), jackson.dumps({"state": state}))]


def _one(record: Java) -> list[Java]:
    return [record]


_FOREIGN_VALUES: st.SearchStrategy[Any] = _VALUES | st.none() | st.integers(0, 1) | st.just({"n": [1.5]})
_SINGLE: st.SearchStrategy[Java] = st.one_of(
    st.builds(ConnectorRecord, NAMES, st.fixed_dictionaries({"v": _FOREIGN_VALUES})),
    st.builds(TaskConfigRecord, NAMES, st.integers(-1, 3), st.fixed_dictionaries({"t": _FOREIGN_VALUES})),
    st.builds(CommitRecord, NAMES, st.sampled_from([0, 1, 2, 3, -1, 2**32 + 1, 2**31])),
    st.builds(TargetStateRecord, NAMES, _STATES),
    st.builds(TaskCountRecord, NAMES, st.sampled_from([0, 1, 2, -1])),
    st.builds(Tombstone, st.sampled_from(["connector", "target-state"]), NAMES),
    st.one_of(_KEYS, _RESTARTS, _LEVELS),
)
JAVA: st.SearchStrategy[list[Java]] = _one_kind_of(
    st.builds(_one, _SINGLE),
    st.builds(_java_tasks, NAMES, _TASKS, st.none(), st.booleans()),
    st.builds(_java_tasks, NAMES, _TASKS, st.integers(0, 2), st.just(True)),
    st.builds(_java_deletes, NAMES, st.booleans(), st.none() | _CONFIGS),
    st.builds(_legacy_state, NAMES, st.sampled_from(["STARTED", "PAUSED"])),
)


def _ours(name: str, changes: list[_Change], expected: bool, create: bool) -> Step:
    def step(world: World) -> None:
        for change in changes:
            _exists(name, world, create)
            world.write(change(name), expected=expected)

    return step


def _races(name: str, change: _Change, records: list[Java], at: int) -> Step:
    def step(world: World) -> None:
        _exists(name, world, create=True)
        world.write(change(name), expected=False, racing=records, at=at)

    return step


def _races_creation(name: str, records: list[Java], at: int) -> Step:
    def step(world: World) -> None:
        if world.writer.state.connector(name).config is not None:
            world.write(DeleteConnector(name), expected=False)
        world.write(PutConnectorConfig(name, {"v": "new"}), expected=False, racing=records, at=at)

    return step


def _exists(name: str, world: World, create: bool) -> None:
    """Make sure that the connector exists: most writes need it to have an effect."""
    if create and world.writer.state.connector(name).config is None:
        world.write(PutConnectorConfig(name, {"v": "new"}), expected=False)


def _other(mutation: Mutation) -> Step:
    return lambda world: world.write(mutation, expected=False)


def _java(operations: list[list[Java]]) -> Step:
    return lambda world: world.java(record for records in operations for record in records)


def _cleans(up_to: float, tombstones_to: float, seed: int) -> Step:
    return lambda world: world.clean(up_to, tombstones_to, seed)


def _restarts(up_to: float, seed: int) -> Step:
    return lambda world: world.restart(up_to, seed)


def _leads(leader_id: str) -> Step:
    return lambda world: world.lead(leader_id)


def _keeps_alive(_: None) -> Step:
    return lambda world: world.java([(KEEP_ALIVE_KEY, b"{}")])


_OURS = st.builds(
    _ours, NAMES, st.lists(_CHANGES, min_size=1, max_size=4), st.booleans(), st.sampled_from([True] * 4 + [False])
)
_THEIRS = st.builds(_java, st.lists(JAVA, min_size=1, max_size=3))
_RACES = st.one_of(
    st.builds(_races, NAMES, _CHANGES, JAVA, st.integers(0, 4)),
    st.builds(_races_creation, NAMES, JAVA, st.integers(0, 2)),
)
_CLEANING = st.builds(_cleans, _FRACTIONS, st.just(0.0) | _FRACTIONS, _SEEDS)
_RESTARTING = st.builds(_restarts, st.just(0.0) | _FRACTIONS, _SEEDS)
_REST = st.one_of(
    st.builds(_leads, st.sampled_from(["h1", "h2"])), st.builds(_keeps_alive, st.none()), st.builds(_other, _OTHERS)
)


def _histories(*kinds: st.SearchStrategy[Step]) -> st.SearchStrategy[list[Step]]:
    return st.lists(_one_kind_of(*kinds), min_size=10, max_size=25)


#: Histories of our writes alone, and of both writers.
OUR_HISTORIES = _histories(_OURS, _OURS, _OURS, _OURS, _CLEANING, _RESTARTING, _REST)
MIXED_HISTORIES = _histories(_OURS, _OURS, _OURS, _THEIRS, _THEIRS, _THEIRS, _RACES, _CLEANING, _RESTARTING, _REST)


def play(steps: Sequence[Step], world: World) -> World:
    """Play all steps, then start one more replica on the remaining records, and one on the records that remain after a
    full cleaning.
    """
    world.lead("h0")
    for step in steps:
        step(world)
    world.check()
    world.restart()
    world.clean(1.0, 1.0, 0)
    world.restart()
    return world
