"""Watcher of all idle tasks: emits TaskHasWork when a sink's partitions grew or its offsets must be committed again,
and when a source should be polled again.

Owns its memory of each idle task. Does not decide how to react to work. Rounds come at intervals, and at once when
`Arrivals` reports a record. Invariants:

- One batched query to Kafka per round, however many tasks are idle, and none when no sink is idle.
- At most one round per `_LOOK_PAUSE_S`.
- No task is forgotten because Kafka was unreachable.
- No sink that owns a partition is idle for longer than `RECOMMIT_S`.
- The same end of a partition wakes a task once, and again only after `_REPEAT_S`. Otherwise records that a run cannot
  see (control records of another producer's transaction) would run it for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec  # the package re-exports it, but not for type checkers

from herdmesh.connect.errors import RetriableError
from herdmesh.connect.spi import Absent, Standing, Wait, Waits
from herdmesh.engine.librdkafka import offset_of, opened
from herdmesh.engine.runtime import SinkSettings, TaskKind, kafka, no_topic, sink_settings
from herdmesh.engine.sink import owns
from herdmesh.kafka.broker_reachability import accepts
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.listed_offsets import KNOWN_S, Topics, list_offsets
from herdmesh.session.model import UnitId
from herdmesh.worker.effects.runs.arrival_watch import PARTITIONS_MAX, Arrivals
from herdmesh.worker.effects.runs.signs import Signs
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.state.events import TaskHasWork, TaskWaits
from herdmesh.worker.state.instructions import WatchTask
from herdmesh.worker.state.model import TaskSpec
from herdmesh.worker.threads import in_thread

PartitionId = tuple[str, int]

_CALL_TIMEOUT_S: Final = 5.0
_INTERVAL_S_MAX: Final = 0.5
_LOOK_PAUSE_S: Final = 0.02
"""Minimum time between two rounds: an arrival may come with every record and wake no task."""
_AWAY_PAUSE_S: Final = 1.0
_SLOWER: Final = 1.05
_METADATA_INTERVAL_S: Final = 2.0
_METADATA_INTERVAL_S_MAX: Final = KNOWN_S
_METADATA_SHARE: Final = 0.02
_REPEAT_S: Final = 10.0
RECOMMIT_S: Final = 6 * 3_600.0
"""A broker deletes the offsets of a group without members after `offsets.retention.minutes`: a week, or less if set so.
Every run commits all offsets of its task, so a sink without records gets a run after this time at most.
"""
_SOURCE_WAKE_MS_DEFAULT: Final = 1_000
_SIGN_INTERVAL_S: Final = 0.25
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class UnreachableWait:
    """How long the system of an idle task has been unreachable or missing."""

    def __init__(self) -> None:
        self._waits = Waits()
        self._standing = Standing(self._waits)
        self._reported: Wait | None = None

    def on_failure(self, error: RetriableError) -> None:
        """Record one more failed attempt."""
        waits_for = error.waits_for or "the source of its task"
        self._standing.goes_on(waits_for, str(error), tried=True, next_try_s=_SIGN_INTERVAL_S)

    def on_missing(self, what: str, why: str) -> None:
        """Record that the system is missing."""
        self._standing.goes_on(what, why)

    def on_reachable(self) -> None:
        """Record that the system is reachable."""
        self._standing.over()

    def take_change(self) -> list[Wait | None]:
        """The wait to report, if it differs from the last one reported."""
        shown = self._waits.shown()
        if shown == self._reported:
            return []
        self._reported = shown
        return [shown]


@dataclass(slots=True)
class _Idle:
    """An idle sink task."""

    idle_id: int
    settings: SinkSettings
    task: int
    task_count: int
    known: dict[PartitionId, int]
    """Partitions its last run owned, with the first offset that counts as work."""
    recommit_s: float
    """Time of its next commit, in the event loop's time."""
    owned: list[PartitionId] | None = None
    """The partitions it owns by present metadata; None = to be computed again."""
    away: UnreachableWait = field(default_factory=UnreachableWait)


@dataclass(slots=True)
class _Woken:
    """Ends that woke a task, kept over its idle periods: end offset and time per partition."""

    at: dict[PartitionId, tuple[int, float]] = field(default_factory=dict[PartitionId, tuple[int, float]])


class IdleWatch:
    """Watches idle tasks from `start` to `close`."""

    def __init__(
        self,
        bootstrap_servers: str,
        access: Mapping[str, str],
        interval_ms: int,
        specs: RunSpecs,
        emit: Callable[[TaskHasWork | TaskWaits], Awaitable[None]],
    ) -> None:
        """`access`: credentials and encryption for the brokers, in librdkafka's settings."""
        self._bootstrap_servers = bootstrap_servers
        self._access = access
        self._interval_s_min = self._interval_s = interval_ms / 1000
        self._specs = specs
        self._emit = emit
        self._sinks: dict[UnitId, _Idle] = {}
        self._woken: dict[UnitId, _Woken] = {}
        self._sources: dict[UnitId, asyncio.Task[None]] = {}
        self._signs: dict[UnitId, str | None] = {}
        self._current_signs = Signs(specs.sign)
        self._changed = asyncio.Event()
        self._arrived = asyncio.Event()
        self._arrivals = Arrivals(bootstrap_servers, access, self._on_arrival)
        self._opening = threading.Lock()
        self._admin: Any = None
        self._admin_former: Any = None
        self._partitions: dict[str, int] = {}
        #: topic metadata at the time of `_partitions`.
        self._topics: Topics = {}
        self._metadata_due = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> list[asyncio.Task[None]]:
        """Start watching. Returns the tasks that must not end before `close`."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._watch(), name="idle watch")
        return [self._task]

    def watch(self, instruction: WatchTask) -> None:
        """Watch a task until it is woken or unwatched."""
        unit = instruction.unit
        assert unit.task is not None
        self.unwatch(unit, forget=False)
        spec = self._specs.without_class(unit, instruction.spec)
        if spec.kind is TaskKind.SOURCE:
            self._sources[unit] = asyncio.create_task(
                self._wait_for_source(instruction), name=f"source {unit.log_context}"
            )
            return
        parts = instruction.progress.partitions if instruction.progress is not None else ()
        # The position, not the end that the run knew: an unread record may have reached its client during the last
        # commit.
        known = {(one.topic, one.partition): max(one.position, 0) for one in parts}
        due_s = recommit_due_s(asyncio.get_running_loop().time())
        self._sinks[unit] = _Idle(
            instruction.idle_id, sink_settings(spec), unit.task, instruction.spec.task_count, known, due_s
        )
        for topic, partition in known:
            self._partitions[topic] = max(partition + 1, self._partitions.get(topic, 0))
        self._interval_s = self._interval_s_min
        self._changed.set()

    def unwatch(self, unit: UnitId, *, forget: bool) -> None:
        """Stop watching; with `forget`, also forget the ends that woke it."""
        self._sinks.pop(unit, None)
        source = self._sources.pop(unit, None)
        if source is not None:
            source.cancel()
        if forget:
            self._woken.pop(unit, None)
            self._signs.pop(unit, None)

    async def close(self) -> None:
        """Stop."""
        tasks = [*self._sources.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        self._arrivals.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        await in_thread("arrivals end", self._arrivals.join)

    # --- sources: a check of the change sign, or a timer

    def remember_sign(self, unit: UnitId, spec: TaskSpec) -> None:
        """Read a source's change sign before its run begins. Called in a thread, because it is an author's code."""
        try:
            self._signs[unit] = self._current_signs.before_run(unit, spec)
        except RetriableError:
            self._signs[unit] = None  # the run itself waits for the source

    async def _wait_for_source(self, instruction: WatchTask) -> None:
        unit, spec = instruction.unit, instruction.spec
        before = self._signs.get(unit)
        away = UnreachableWait()
        wake_s = (instruction.wake_after_ms or _SOURCE_WAKE_MS_DEFAULT) / 1000
        while True:
            await asyncio.sleep(wake_s if before is None else min(wake_s, _SIGN_INTERVAL_S))
            sign = None
            if before is not None:
                sign = await self._sign_now(unit, spec, before, away)
            if sign is None or sign != before:
                break
        self._sources.pop(unit, None)
        await self._emit(
            TaskHasWork(unit, instruction.idle_id, "its wake-up time has come" if before is None else "its sign")
        )

    async def _sign_now(self, unit: UnitId, spec: TaskSpec, before: str, away: UnreachableWait) -> str | None:
        """The sign; `before` while the source is unreachable, since a run could only wait for it."""
        try:
            found = await self._current_signs.now(unit, spec)
        except RetriableError as error:
            _log.debug("source_unreachable", unit=unit.log_context, error=str(error))
            away.on_failure(error)
            return before
        else:
            if isinstance(found, Absent):
                away.on_missing(found, found.why)
            else:
                away.on_reachable()
            return found
        finally:
            for wait in away.take_change():
                await self._emit(TaskWaits(unit, wait))

    # --- sinks: one query for all

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        away = False
        while True:
            if not self._sinks:
                self._arrivals.listen({})
                self._changed.clear()
                await self._changed.wait()
            self._arrived.clear()
            try:
                if loop.time() >= self._metadata_due:
                    await self._refresh(loop)
                wanted = {partition for idle in self._sinks.values() for partition in self._owned(idle)}
                ends = await in_thread("end offsets", lambda wanted=wanted: self._ends(wanted)) if wanted else {}
                await self._record_missing()
                await self._compare(ends, loop.time())
                self._arrivals.listen(self._listened(ends))
                away = False
            except (KafkaException, TimeoutError) as error:
                if not away:
                    _log.warning("idle_watch_failed", error=str(error) or "no answer")
                away = True
                await self._record_unreachable(error)
                await asyncio.sleep(_AWAY_PAUSE_S)
                continue
            # The interval grows while there is no work.
            self._interval_s = min(self._interval_s * _SLOWER, max(self._interval_s_min, _INTERVAL_S_MAX))
            wait_s = random.uniform(self._interval_s * 0.9, self._interval_s)
            pause_s = min(wait_s, _LOOK_PAUSE_S)
            await asyncio.sleep(pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s - pause_s):
                    await self._arrived.wait()

    async def _record_unreachable(self, error: Exception) -> None:
        """Record for all idle sinks that Kafka is unreachable."""
        said = RetriableError(str(error) or "no answer", waits_for=kafka(self._bootstrap_servers))
        for idle in self._sinks.values():
            idle.away.on_failure(said)
        await self._emit_waits()

    async def _record_missing(self) -> None:
        """Record the sinks none of whose topics exists."""
        for idle in self._sinks.values():
            if any(topic in self._partitions for topic in self._topics_of(idle.settings)):
                idle.away.on_reachable()
            else:
                idle.away.on_missing(*no_topic(idle.settings))
        await self._emit_waits()

    async def _emit_waits(self) -> None:
        for unit, idle in list(self._sinks.items()):
            for wait in idle.away.take_change():
                await self._emit(TaskWaits(unit, wait))

    def _on_arrival(self) -> None:
        """Start the next round. Called from another thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._arrived.set)

    def _listened(self, ends: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """The ends to watch for arrivals: the tasks that became idle last are the likeliest to get records."""
        found: dict[PartitionId, int] = {}
        for idle in reversed(self._sinks.values()):
            found.update((partition, ends[partition]) for partition in self._owned(idle) if partition in ends)
            if len(found) >= PARTITIONS_MAX:
                return dict(list(found.items())[:PARTITIONS_MAX])
        return found

    async def _refresh(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read topics and partition counts; less often the longer that takes."""
        begun = loop.time()
        partitions = await in_thread("metadata", self._list_topics)
        now = loop.time()
        pause_s = (now - begun) / _METADATA_SHARE
        self._metadata_due = now + min(max(_METADATA_INTERVAL_S, pause_s), _METADATA_INTERVAL_S_MAX)
        if partitions != self._partitions:
            # A topic of the same name that appears later is a different one, with offsets from 0.
            gone = self._partitions.keys() - partitions.keys()
            self._partitions = partitions
            for idle in self._sinks.values():
                idle.owned = None
                idle.known = {partition: end for partition, end in idle.known.items() if partition[0] not in gone}

    def _owned(self, idle: _Idle) -> list[PartitionId]:
        if idle.owned is None:
            idle.owned = [
                (topic, number)
                for topic in self._topics_of(idle.settings)
                for number in range(self._partitions.get(topic, 0))
                if owns(topic, number, idle.task, idle.task_count)
            ]
        return idle.owned

    def _topics_of(self, settings: SinkSettings) -> list[str]:
        if settings.topics_regex is None:
            return list(settings.topics)
        return [topic for topic in self._partitions if settings.wants(topic)]

    async def _compare(self, ends: Mapping[PartitionId, int], now: float) -> None:
        for unit, idle in list(self._sinks.items()):
            grown = self._grown(unit, idle, ends, now)
            if grown is not None:
                self._interval_s = self._interval_s_min
                topic, partition = grown
                reason = f"{topic}-{partition} ends at {ends[grown]}"
            elif now >= idle.recommit_s and self._owned(idle):
                reason = "its offsets are to be committed again"
            else:
                continue
            self._sinks.pop(unit, None)
            await self._emit(TaskHasWork(unit, idle.idle_id, reason))

    def _grown(self, unit: UnitId, idle: _Idle, ends: Mapping[PartitionId, int], now: float) -> PartitionId | None:
        woken = self._woken.setdefault(unit, _Woken())
        found: PartitionId | None = None
        for partition in self._owned(idle):
            end = ends.get(partition, -1)
            if 0 <= end < idle.known.get(partition, 0):
                # Its topic was deleted and recreated between two metadata reads: a different topic, with offsets from
                # 0.
                del idle.known[partition]
                woken.at.pop(partition, None)
            if end <= idle.known.get(partition, 0):
                continue
            last_end, last_time = woken.at.get(partition, (-1, 0.0))
            if end <= last_end and now - last_time < _REPEAT_S:
                continue
            woken.at[partition] = (end, now)
            found = partition
        return found

    # --- in threads

    def ends_of(self, wanted: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """The ends of these partitions, whichever task has them, through the same client. Blocks. Raises KafkaException
        or TimeoutError.
        """
        self._list_topics()
        return self._ends(wanted)

    def _client(self) -> Any:
        with self._opening:
            if self._admin is None:
                self._admin = opened(
                    AdminClient,
                    "admin",
                    {
                        "bootstrap.servers": self._bootstrap_servers,
                        "client.id": "herdmesh-idle-watch",
                        **NO_AUTO_CREATION,
                        "reconnect.backoff.max.ms": 500,
                        **self._access,
                    },
                )
            return self._admin

    def _list_topics(self) -> dict[str, int]:
        client = self._client()
        client.poll(0)  # flush its log lines
        try:
            metadata: Any = client.list_topics(timeout=_CALL_TIMEOUT_S)
        except KafkaException:
            if accepts(self._bootstrap_servers):
                # The client may have forgotten the brokers for good (`herdmesh.kafka.broker_reachability`). It is kept,
                # because destroying it waits for its threads.
                self._admin_former, self._admin = client, None
            raise
        self._topics = metadata.topics
        return {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}

    def _ends(self, wanted: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """The end of each partition as a read_committed consumer sees it; missing partitions are left out."""
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for topic, number in wanted}
        futures = list_offsets(
            self._client(),
            asked,
            isolation_level=IsolationLevel.READ_COMMITTED,
            timeout_s=_CALL_TIMEOUT_S,
            known=self._topics,
        )
        ends: dict[PartitionId, int] = {}
        failure: KafkaException | None = None
        for asked_of, future in futures.items():
            try:
                ends[(asked_of.topic, asked_of.partition)] = offset_of(future.result(_CALL_TIMEOUT_S + 1.0))
            except KafkaException as error:
                failure = error
        if failure is not None:
            # After a broker's restart the client sends the leader epoch it remembers, is refused for some partitions,
            # and never recovers by itself: only metadata has the new epoch.
            self._metadata_due = 0.0
            if not ends:
                raise failure
        return ends


def recommit_due_s(now_s: float) -> float:
    """Time of the next commit of a sink that becomes idle now. Random, so that sinks that became idle together, for
    example after their worker's start, do not run together.
    """
    return now_s + random.uniform(RECOMMIT_S / 2, RECOMMIT_S)
