"""Watcher of idle tasks, without a broker: a changed sign wakes a source, and a due commit wakes a sink."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from herdmesh.connect.config.config_def import ConfigDef
from herdmesh.connect.errors import RetriableError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry, describe
from herdmesh.connect.spi import waits
from herdmesh.connect.spi.connector import PartitionId, SourceConnector
from herdmesh.connect.spi.waits import Wait
from herdmesh.connectors.file_stream.sink.connector import FileStreamSink
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.engine.runtime.contract import PartitionProgress, ProgressReport, Properties
from herdmesh.session.model import UnitId
from herdmesh.worker.effects.runs import idle_watch, signs
from herdmesh.worker.effects.runs.idle_watch import IdleWatch
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.events import TaskHasWork, TaskWaits
from herdmesh.worker.state.instructions import WatchTask
from herdmesh.worker.state.model import TaskSpec

WAIT_S = 30.0


class Away(SourceConnector):
    """Specs whose signs a test sets; None = the source is unreachable."""

    class_name = "Away"
    aliases = ()
    version = "1"
    signs: ClassVar[list[str | None]] = []

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_class(self) -> str:
        return "none"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return []

    def sign(self, task_config: Properties) -> str | None:
        sign = self.signs.pop(0)
        if sign is None:
            raise RetriableError("the source is away")
        return sign


async def _wake(heard: asyncio.Queue[TaskHasWork | TaskWaits]) -> TaskHasWork:
    """The next event that wakes a task; waits are left out."""
    while not isinstance(event := await heard.get(), TaskHasWork):
        pass
    return event


async def test_an_unreachable_source_wakes_no_task() -> None:
    """A run could only wait for it, and keep a slot meanwhile."""
    specs = RunSpecs(WorkerSettings(), PluginRegistry([describe(Away)]))
    woken: asyncio.Queue[TaskHasWork | TaskWaits] = asyncio.Queue(10)
    watch = IdleWatch("127.0.0.1:1", {}, 3_600_000, specs, woken.put)
    unit, spec = UnitId("c", 0), TaskSpec({"connector.class": "Away"}, {}, 1)
    Away.signs[:] = ["old", None, None, "old", "new"]
    try:
        watch.remember_sign(unit, spec)
        watch.watch(WatchTask(unit, 1, spec, None, 0))
        async with asyncio.timeout(WAIT_S):
            assert (await _wake(woken)).reason == "its sign"
        assert Away.signs == []
        Away.signs[:] = [None]
        watch.remember_sign(unit, spec)  # of a run that begins while it is unreachable
        watch.watch(WatchTask(unit, 2, spec, None, 1))
        async with asyncio.timeout(WAIT_S):
            assert (await _wake(woken)).reason == "its wake-up time has come"
    finally:
        await watch.close()


async def test_an_idle_source_reports_a_wait_while_its_file_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its task returned nothing, as if there were no new lines."""
    monkeypatch.setattr(waits, "SHOWN_AFTER_S", 0.0)
    specs = RunSpecs(WorkerSettings(), PluginRegistry([describe(FileStreamSource)]))
    told: asyncio.Queue[TaskHasWork | TaskWaits] = asyncio.Queue(10)
    watch = IdleWatch("127.0.0.1:1", {}, 3_600_000, specs, told.put)
    file = tmp_path / "orders.txt"
    config = {"connector.class": "FileStreamSource", "topic": "t", "file": str(file)}
    unit, spec = UnitId("c", 0), TaskSpec(config, config, 1)
    try:
        watch.remember_sign(unit, spec)
        watch.watch(WatchTask(unit, 1, spec, None, 0))
        async with asyncio.timeout(WAIT_S):
            event = await told.get()
            assert isinstance(event, TaskWaits)
            assert event.wait is not None
            assert event.wait.text().startswith(f"waits for file {file}: it does not exist on this worker")
            file.write_text("a line\n")
            assert await told.get() == TaskWaits(unit, None)
            assert (await _wake(told)).reason == "its sign"
    finally:
        await watch.close()


class Quiet:
    """A broker with topic `t`, whose one partition ends at 5; `looked` is called at each query for ends."""

    def __init__(self, looked: Callable[[], None]) -> None:
        self._looked = looked

    def poll(self, timeout: float) -> int:
        return 0

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={"t": SimpleNamespace(error=None, partitions={0: SimpleNamespace(leader=1)})})

    def list_offsets(self, asked: Iterable[Any], **_: Any) -> dict[Any, Future[Any]]:
        self._looked()
        answers: dict[Any, Future[Any]] = {one: Future() for one in asked}
        for answer in answers.values():
            answer.set_result(SimpleNamespace(offset=5))
        return answers


class Forgetful(Quiet):
    """A client that has forgotten the brokers: no request is ever answered."""

    def list_topics(self, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


class Deaf:
    """Reports no arrival."""

    def __init__(self, *_: object) -> None: ...

    def listen(self, ends: Mapping[PartitionId, int]) -> None: ...

    def close(self) -> None: ...

    def join(self) -> None: ...


@pytest.fixture
async def sinks(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sinks]:
    sinks = Sinks()

    def opened(*_: object) -> Quiet:
        return Quiet(sinks.looked)

    monkeypatch.setattr(idle_watch, "Arrivals", Deaf)
    monkeypatch.setattr(idle_watch, "opened", opened)
    sinks.start()
    try:
        yield sinks
    finally:
        await sinks.close()


class Sinks:
    """Idle sinks of the broker of topic `t`, watched."""

    def __init__(self) -> None:
        self.looks = asyncio.Queue[None]()
        self.woken = asyncio.Queue[TaskHasWork | TaskWaits](10)
        self._loop = asyncio.get_running_loop()
        specs = RunSpecs(WorkerSettings(), PluginRegistry([describe(FileStreamSink)]))
        self._watch = IdleWatch("127.0.0.1:1", {}, 1, specs, self.woken.put)
        self.start, self.close = self._watch.start, self._watch.close

    def looked(self) -> None:
        self._loop.call_soon_threadsafe(self.looks.put_nowait, None)

    async def wakes(self) -> TaskHasWork:
        async with asyncio.timeout(WAIT_S):
            return await _wake(self.woken)

    def goes_idle(self, name: str, topic: str, idle_id: int, position: int = 5) -> None:
        config = {"name": name, "connector.class": "FileStreamSink", "topics": topic, "file": name}
        read = ProgressReport(partitions=(PartitionProgress("t", 0, position, position, 5),) if topic == "t" else ())
        self._watch.watch(WatchTask(UnitId(name, 0), idle_id, TaskSpec(config, config, 1), read, 0))


async def test_a_sink_without_records_is_woken_to_commit_before_its_offsets_expire(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks.goes_idle("c", "t", 1)
    async with asyncio.timeout(WAIT_S):
        for _ in range(5):
            await sinks.looks.get()
    assert sinks.woken.empty(), "it has time"
    monkeypatch.setattr(idle_watch, "RECOMMIT_S", 0.0)
    sinks.goes_idle("without a partition", "nowhere", 1)  # is checked before the other, and has nothing to commit
    sinks.goes_idle("c", "t", 2)
    found = await sinks.wakes()
    assert (found.unit, found.idle_id) == (UnitId("c", 0), 2)
    assert sinks.woken.empty()


async def test_a_client_that_forgot_the_brokers_is_replaced_once_a_broker_is_reachable(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, made = [False, False, True], list[Quiet]()

    def opened(*_: object) -> Quiet:
        made.append(Quiet(sinks.looked) if made else Forgetful(sinks.looked))
        return made[-1]

    def accepts(_bootstrap: str) -> bool:
        return reached.pop(0)

    monkeypatch.setattr(idle_watch, "_AWAY_PAUSE_S", 0.01)
    monkeypatch.setattr(idle_watch, "accepts", accepts)
    monkeypatch.setattr(idle_watch, "opened", opened)
    sinks.goes_idle("c", "t", 1)
    await sinks.looks.get()
    assert (len(made), reached) == (2, []), "no other while the cluster is away, for it would help nobody"


async def test_an_idle_sink_reports_a_wait_for_a_missing_topic_and_an_unreachable_broker(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "SHOWN_AFTER_S", 0.0)

    async def told() -> Wait | None:
        async with asyncio.timeout(WAIT_S):
            while not isinstance(event := await sinks.woken.get(), TaskWaits):
                pass
        return event.wait

    sinks.goes_idle("c", "nowhere", 1)
    missing = await told()
    assert missing is not None
    assert missing.text() == "waits for topic nowhere: it does not exist; it is read as soon as it does (topics)"
    sinks.goes_idle("c", "t", 2)
    away = [True]
    has_topics = Quiet.list_topics

    def list_topics(self: Quiet, timeout: float) -> Any:
        if away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return has_topics(self, timeout)

    monkeypatch.setattr(idle_watch, "_AWAY_PAUSE_S", 0.01)
    monkeypatch.setattr(idle_watch, "_METADATA_INTERVAL_S", 0.0)
    monkeypatch.setattr(idle_watch, "accepts", lambda _bootstrap: False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr(Quiet, "list_topics", list_topics)
    gone = await told()
    assert gone is not None
    assert gone.waits_for == "Kafka 127.0.0.1:1"
    away.clear()
    while (later := await told()) is not None:
        assert later.tries >= gone.tries
    assert later is None


async def test_records_that_arrive_while_a_run_ends_wake_its_task(sinks: Sinks) -> None:
    """Its client had fetched them, so it knew the new end, while the loop did its last commit."""
    sinks.goes_idle("c", "t", 1, position=3)
    assert (await sinks.wakes()).reason == "t-0 ends at 5"


def test_sinks_that_become_idle_together_recommit_spread_out_within_a_day() -> None:
    """A broker's retention of offsets may be a day, and many tasks of one worker become idle within a minute of its
    start.
    """
    due_s = sorted(idle_watch.recommit_due_s(100.0) - 100.0 for _ in range(1_000))
    assert due_s[0] > 3_600, "a run costs more than a look"
    assert due_s[-1] <= 24 * 3_600 / 4, "after that a worker may have been away, or the task moved"
    together = max(sum(at <= one < at + 60 for one in due_s) for at in due_s)
    assert together < 30, "of 1,000, in the fullest minute"


async def test_a_hanging_change_sign_does_not_block_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not called again meanwhile: each call would leave a thread behind."""
    monkeypatch.setattr(signs, "SIGN_MAX_S", 0.05)
    asked, go_on = list[UnitId](), threading.Event()

    def ask(unit: UnitId, _: TaskSpec) -> str | None:
        asked.append(unit)
        go_on.wait(WAIT_S)
        if unit.connector == "exits":
            raise SystemExit(3)
        return "sign"

    found, spec = signs.Signs(ask), TaskSpec({}, {}, 1)
    with capture_logs() as logs:
        for unit in (UnitId("hangs", 0), UnitId("exits", 0)):
            assert await asyncio.to_thread(found.before_run, unit, spec) is None
            threads = threading.active_count()
            assert await found.now(unit, spec) is None
            assert threading.active_count() <= threads, "the second call must not start a thread"
    assert [one["unit"] for one in logs if one["event"] == "sign_late"] == ["[hangs|task-0]", "[exits|task-0]"]
    assert len(asked) == 2
    go_on.set()
    monkeypatch.setattr(signs, "SIGN_MAX_S", WAIT_S)
    for thread in threading.enumerate():
        if thread.name.startswith("sign of "):
            await asyncio.to_thread(thread.join, WAIT_S)
    assert await found.now(UnitId("hangs", 0), spec) == "sign"
    assert await found.now(UnitId("exits", 1), spec) is None


async def test_a_sign_is_read_again_after_its_thread_could_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would count as in progress until the worker ends."""
    found, unit, spec = signs.Signs(lambda _unit, _spec: "sign"), UnitId("c", 0), TaskSpec({}, {}, 1)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            found.before_run(unit, spec)
        with pytest.raises(RuntimeError, match="new thread"):
            await found.now(unit, spec)
    assert await found.now(unit, spec) == "sign"
    assert await asyncio.to_thread(found.before_run, unit, spec) == "sign"
