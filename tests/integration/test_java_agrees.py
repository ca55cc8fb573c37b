"""A running Java Connect 4.3.1 worker and our two stores on the same topics: after every step both views are equal.

Java does everything a user can request, plain and with exactly-once source support; our stores only follow, because
Connect's group has a member. State that REST does not show is compared with the records themselves (`RawTopics`).
The second worker also validates generated configs, and its answers are compared with our own validation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from herdmesh.rpc.errors import HerdmeshError
from tests.support.asking_java import assert_validates_as_java
from tests.support.beside_java import AGREE_S, Json, OurStores, RawTopics, agree, assert_targets, beside_java
from tests.support.java_connect import QUICK_CLIENTS, JavaConnect
from tests.support.validations import WORKERS

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

STRING = "org.apache.kafka.connect.storage.StringConverter"
RUNNING, PAUSED, STOPPED, FAILED = "RUNNING", "PAUSED", "STOPPED", "FAILED"
ODD = "odd é ☃ name-1-2"
CREATED = ["CONFIG_UPDATED", "TASKS_COMMITTED"]
#: of the worker with exactly-once support, and the facts our validation has about it.
_ASKED_SETTINGS, _ASKED_FACTS = WORKERS["eos"]
#: `make soak` validates thousands (test_java_validates.py).
_CONFIGS_ASKED = 60


class Scene:
    """One Java worker, our stores beside it, and the files its connectors use."""

    def __init__(self, bootstrap: str, java: JavaConnect, folder: Path, topic: str, exactly_once: bool) -> None:
        self.java = java
        self.ours = OurStores(bootstrap, java, folder)
        self.folder = folder
        self.topic = topic
        self.exactly_once = exactly_once
        self.raw = RawTopics(bootstrap, java.topics.config, java.topics.status)
        self.secrets = folder / "secrets.properties"
        self.fenced = ["TASK_COUNT"] if exactly_once else []
        """Events that follow a source's new task set."""
        self._events_seen = 0

    def source(self, **more: str) -> dict[str, str]:
        return {
            "connector.class": "FileStreamSource",
            "tasks.max": "1",
            "file": str(self.folder / "in.txt"),
            "topic": self.topic,
            "value.converter": STRING,
            **more,
        }

    def sink(self, **more: str) -> dict[str, str]:
        return {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": "1",
            "file": str(self.folder / "out.txt"),
            "topics": self.topic,
            "value.converter": STRING,
            **more,
        }

    async def step(
        self,
        title: str,
        action: Callable[..., Any],
        *arguments: Any,
        shows: Mapping[str, tuple[str, list[str]] | None],
        tells: list[str],
        **named: Any,
    ) -> dict[str, Json]:
        """Do it in Java, wait until Java shows it, and compare everything.

        `shows`: states of connector and tasks, None = gone. `tells`: expected events of our config store's watch.
        """
        title = f"{title} ({'exactly-once' if self.exactly_once else 'plain'})"
        print(f"{time.strftime('%X')} {title}")  # shown when the test fails: how far it came
        await asyncio.to_thread(action, *arguments, **named)
        for name, expected in shows.items():
            await self._until_shown(title, name, expected)
        followed = self.ours.followed
        first = self._events_seen
        # Java may show the wanted state before it has finished: a task that ran before keeps running
        await followed.until(lambda: len(followed.events) >= first + len(tells), f"{title}: {tells}")
        view = await agree(self.java, self.ours, title)
        entries = await self.ours.entries()
        assert_targets(entries, view)
        await self._read_raw()
        await self.ours.assert_told_what_is_stored(self.raw)
        await self._read_raw()  # the watch may have got more events meanwhile
        self._compare_with_records(title, entries)
        self._events_seen = len(followed.events)
        assert [kind for kind, _name in followed.events[first:]] == tells, title
        assert not await self.ours.config.is_writing(), f"{title}: our store writes beside a live Java cluster"
        return view

    async def _read_raw(self) -> None:
        """Wait until the plain reader is where the watch of the statuses is: Java may write one at any time."""
        async with asyncio.timeout(AGREE_S):
            await asyncio.to_thread(self.raw.read)
            while self.ours.followed.status_revision != self.raw.past_status:
                await asyncio.sleep(0.05)
                await asyncio.to_thread(self.raw.read)

    async def _until_shown(self, title: str, name: str, expected: tuple[str, list[str]] | None) -> None:
        shown = None
        try:
            async with asyncio.timeout(45):
                shown = await asyncio.to_thread(self._states, name)
                while shown != expected:
                    await asyncio.sleep(0.05)
                    shown = await asyncio.to_thread(self._states, name)
        except TimeoutError:
            raise AssertionError(f"{title}: Java never showed {name} as {expected}; last {shown}") from None

    def _states(self, name: str) -> tuple[str, list[str]] | None:
        status = self.java.status(name)
        if status is None or name not in self.java.names():
            return None if status is None else ("UNKNOWN", [])
        return status["connector"]["state"], [task["state"] for task in status["tasks"]]

    def _compare_with_records(self, title: str, entries: dict[str, Any]) -> None:
        followed = self.ours.followed
        raw_events = self.raw.events[-len(followed.events) :] if followed.events else []
        assert followed.events == raw_events, title
        for name, entry in entries.items():
            record = self.raw.latest_config.get(f"tasks-fencing-{name}")
            count = entry.task_count_record if entry.HasField("task_count_record") else None
            assert count == (record and record["task-count"]), title
            assert entry.foreign, f"{title}: nobody but Java wrote {name}"
        for (connector, task), status in followed.statuses.items():
            key = f"status-connector-{connector}" if task is None else f"status-task-{connector}-{task}"
            assert status.generation == self.raw.latest_status[key]["generation"], title
            assert status.effective_state == status.state, f"{title}: Java keeps no lease, so none of it can expire"


@asynccontextmanager
async def scene(bootstrap: str, folder: Path, topic: str, exactly_once: bool) -> AsyncGenerator[Scene]:
    """Java first, so that our config store finds a live cluster."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic(topic, 2, 1)])[topic].result, 45)
    settings = {
        **QUICK_CLIENTS,
        "offset.flush.interval.ms": "500",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "isolation.level": "read_committed",
        **(_ASKED_SETTINGS if exactly_once else {}),
    }
    java = JavaConnect(bootstrap, folder / "java", group=topic, settings=settings)
    try:
        await asyncio.to_thread(java.start)
        one = await asyncio.to_thread(Scene, bootstrap, java, folder, topic, exactly_once)
        try:
            async with one.ours.running():
                yield one
        finally:
            one.raw.close()
    finally:
        await asyncio.to_thread(java.stop)


@beside_java
async def test_our_stores_agree_with_java_after_every_step(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Plain and with exactly-once support, two clusters side by side: most of a step's time Java waits for itself."""
    async with asyncio.TaskGroup() as both:
        for exactly_once in (False, True):
            both.create_task(_tour(kafka_bootstrap, tmp_path, tmp_topic("agree"), exactly_once))


async def _tour(bootstrap: str, folder: Path, topic: str, exactly_once: bool) -> None:
    async with scene(bootstrap, folder / topic, topic, exactly_once) as one:
        await _create_update_and_patch(one)
        await _pause_stop_and_restart(one)
        await _fail_and_mend(one)
        await _initial_states_and_names(one)
        await _delete_and_recreate(one)
        await _nobody_else_writes(one)
        if exactly_once:
            facts = replace(_ASKED_FACTS, group_id=one.java.group)
            await asyncio.to_thread(assert_validates_as_java, one.java, facts, range(_CONFIGS_ASKED))


async def _create_update_and_patch(one: Scene) -> None:
    java, fenced = one.java, one.fenced
    (one.folder / "in.txt").write_text("one\ntwo\nthree\n")
    await one.step(
        "create source", java.create, "src", one.source(), shows={"src": (RUNNING, [RUNNING])}, tells=CREATED + fenced
    )
    await one.step("create sink", java.create, "snk", one.sink(), shows={"snk": (RUNNING, [RUNNING])}, tells=CREATED)
    await _until_lines(one.folder / "out.txt", 3)
    view = await one.step("records flowed", lambda: None, shows={}, tells=[])
    assert view["src"]["topics"] == view["snk"]["topics"] == [one.topic]
    grown, shrunk = one.sink(**{"tasks.max": "3"}), one.sink(**{"tasks.max": "2"})
    await one.step("more tasks", java.put_config, "snk", grown, shows={"snk": (RUNNING, [RUNNING] * 3)}, tells=CREATED)
    await one.step(
        "fewer tasks", java.put_config, "snk", shrunk, shows={"snk": (RUNNING, [RUNNING] * 2)}, tells=CREATED
    )
    await one.step(
        "same config", java.put_config, "snk", shrunk, shows={"snk": (RUNNING, [RUNNING] * 2)}, tells=["CONFIG_UPDATED"]
    )
    for change in ({"batch.size": "50"}, {"batch.size": None}):
        view = await one.step(
            "patch", java.patch_config, "src", change, shows={"src": (RUNNING, [RUNNING])}, tells=CREATED + fenced
        )
        assert view["src"]["tasks"][0].get("batch.size") == change["batch.size"]


async def _pause_stop_and_restart(one: Scene) -> None:
    java, fenced = one.java, one.fenced
    running = {"src": (RUNNING, [RUNNING])}
    await one.step("pause", java.pause, "src", shows={"src": (PAUSED, [PAUSED])}, tells=["TARGET_STATE"])
    await one.step("pause again", java.pause, "src", shows={"src": (PAUSED, [PAUSED])}, tells=[])
    await one.step("resume", java.resume, "src", shows=running, tells=["TARGET_STATE"])
    await one.step(
        "stop", java.stop_connector, "src", shows={"src": (STOPPED, [])}, tells=["TASKS_COMMITTED", "TARGET_STATE"]
    )
    if one.exactly_once:
        await one.step(
            "alter offsets",
            *(java.request, "DELETE", "/connectors/src/offsets"),
            shows={"src": (STOPPED, [])},
            tells=["TASK_COUNT"],
        )
    await one.step(
        "resume stopped", java.resume, "src", shows=running, tells=["TARGET_STATE", "TASKS_COMMITTED", *fenced]
    )
    await one.step("restart connector", java.restart, "src", shows=running, tells=[])
    await one.step("restart all", java.restart, "src", include_tasks=True, shows=running, tells=["RESTART"])
    await one.step(
        "restart failed", java.restart, "src", include_tasks=True, only_failed=True, shows=running, tells=["RESTART"]
    )
    await one.step("restart task", java.restart_task, "src", 0, shows=running, tells=[])


async def _fail_and_mend(one: Scene) -> None:
    java, failed = one.java, (RUNNING, [FAILED])
    nowhere = one.sink(file="/nonexistent/dir/out.txt")
    await one.step("task cannot start", java.create, "bad", nowhere, shows={"bad": failed}, tells=CREATED)
    await one.step(
        "restart it",
        java.restart,
        "bad",
        include_tasks=True,
        only_failed=True,
        shows={"bad": failed},
        tells=["RESTART"],
    )
    await one.step("restart the task", java.restart_task, "bad", 0, shows={"bad": failed}, tells=[])
    mended = one.sink(file=str(one.folder / "mended.txt"))
    await one.step("mend it", java.put_config, "bad", mended, shows={"bad": (RUNNING, [RUNNING])}, tells=CREATED)
    cast = {"transforms": "c", "transforms.c.type": "org.apache.kafka.connect.transforms.Cast$Value"}
    breaking = one.sink(**cast, **{"transforms.c.spec": "int32"})
    view = await one.step(
        "task fails on a record", java.create, "cast", breaking, shows={"cast": failed}, tells=CREATED
    )
    assert "Tolerance exceeded" in view["cast"]["task_statuses"][0]["trace"]

    one.secrets.write_text(f"out={one.folder / 'secret-out.txt'}\n")
    hidden = one.sink(file=f"${{file:{one.secrets}:out}}")
    view = await one.step(
        "config with a variable", java.create, "hidden", hidden, shows={"hidden": (RUNNING, [RUNNING])}, tells=CREATED
    )
    assert view["hidden"]["config"]["file"] == hidden["file"]
    one.secrets.unlink()
    # Connect writes RESTARTING before it resolves the variable again, and leaves it there
    lost = ("RESTARTING", ["RESTARTING"])
    await one.step(
        "variable lost", java.restart, "hidden", include_tasks=True, shows={"hidden": lost}, tells=["RESTART"]
    )
    one.secrets.write_text(f"out={one.folder / 'secret-out.txt'}\n")
    await one.step(
        "variable found",
        *(java.restart, "hidden"),
        include_tasks=True,
        shows={"hidden": (RUNNING, [RUNNING])},
        tells=["RESTART"],
    )

    # its offsets may not be kept in a topic without compaction
    forgetful = one.source(**{"offsets.storage.topic": one.topic})
    view = await one.step(
        "connector fails", java.create, "lost", forgetful, shows={"lost": (FAILED, [])}, tells=["CONFIG_UPDATED"]
    )
    assert "cleanup.policy" in view["lost"]["connector"]["trace"]
    await one.step(
        "restart it", java.restart, "lost", only_failed=True, shows={"lost": (FAILED, [])}, tells=["RESTART"]
    )
    await one.step(
        "mend it",
        java.put_config,
        "lost",
        one.source(file="none.txt"),
        shows={"lost": (RUNNING, [RUNNING])},
        tells=CREATED + one.fenced,
    )


async def _initial_states_and_names(one: Scene) -> None:
    java = one.java
    for state in (STOPPED, PAUSED):
        name = f"born-{state.lower()}"
        await one.step(
            "create", java.create, name, one.sink(), state, shows={name: (state, [])}, tells=["CONFIG_UPDATED"]
        )
    for state in (STOPPED, PAUSED):
        name = f"born-{state.lower()}"
        await one.step(
            "start it", java.resume, name, shows={name: (RUNNING, [RUNNING])}, tells=["TARGET_STATE", "TASKS_COMMITTED"]
        )
    odd = one.sink(**{"tasks.max": "2"})
    await one.step("odd name", java.create, ODD, odd, shows={ODD: (RUNNING, [RUNNING, RUNNING])}, tells=CREATED)
    logger = "org.apache.kafka.connect.runtime.WorkerSinkTask"
    await one.step("logger level", java.set_cluster_logger, logger, "WARN", shows={}, tells=["LOGGER"])


async def _delete_and_recreate(one: Scene) -> None:
    java, fenced = one.java, one.fenced
    await one.step("forget topics", java.request, "PUT", "/connectors/snk/topics/reset", shows={}, tells=[])
    for _ in range(2):
        await one.step("delete", java.delete, "src", shows={"src": None}, tells=["CONFIG_REMOVED"])
        await one.step(
            "recreate", java.create, "src", one.source(), shows={"src": (RUNNING, [RUNNING])}, tells=CREATED + fenced
        )
    for name in ("bad", "cast", "hidden", "lost", "born-stopped", "born-paused", ODD, "snk", "src"):
        await one.step("delete", java.delete, name, shows={name: None}, tells=["CONFIG_REMOVED"])
    statuses = {key for key, value in one.raw.latest_status.items() if value is not None}
    assert not statuses, "Java left statuses behind"
    assert not one.ours.followed.statuses


async def _nobody_else_writes(one: Scene) -> None:
    """Our store refuses to write while Java lives, and exactly-once leaves a marker after each transaction."""
    with pytest.raises(HerdmeshError) as refused:
        await one.ours.config.put("ours", {"connector.class": "FileStreamSink"})
    assert refused.value.reason in ("NOT_WRITER", "FOREIGN_WRITER")
    assert "ours" not in await asyncio.to_thread(one.java.names)
    markers = one.raw.end - one.raw.keys.total()
    assert (markers > 0) == one.exactly_once, f"{markers} markers"


def _lines(file: Path) -> int:
    return file.read_text().count("\n") if file.exists() else 0


async def _until_lines(file: Path, lines: int) -> None:
    async with asyncio.timeout(45):
        found = await asyncio.to_thread(_lines, file)
        while found < lines:
            await asyncio.sleep(0.05)
            found = await asyncio.to_thread(_lines, file)
