"""Automatic restarts of a failing task, visible to users: over the real mesh."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.statusstore.v1 import status_pb2, status_read_service_pb2
from herdmesh.api.statusstore.v1.status_read_service_pb2_grpc import StatusReadServiceStub
from herdmesh.cli.display.views import Json
from herdmesh.rpc.client import connect
from tests.support.mesh import Mesh, assert_exact, parquet_sink
from tests.support.pages import until_pages

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]

WAITS = re.compile(r"(\d) of 8, next at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@asynccontextmanager
async def statuses_of(mesh: Mesh, name: str) -> AsyncGenerator[list[status_pb2.Status]]:
    """Every status of the connector's task 0 from now on, in the order the status store wrote them."""
    address = next(one.address for one in mesh.stack.state.services if one.name.startswith("status-store"))
    found: list[status_pb2.Status] = []

    async def follow() -> None:
        request = status_read_service_pb2.WatchStatusesRequest(connectors=[name])
        async for response in StatusReadServiceStub(channel).WatchStatuses(request):
            put = response.status_put if response.WhichOneof("event") == "status_put" else None
            found.extend([put] if put is not None and put.HasField("task") else [])

    channel = connect(address)
    following = asyncio.create_task(follow())
    try:
        yield found
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await channel.close()


def told(status: status_pb2.Status) -> tuple[str, str]:
    """State, and the message of the condition RESTARTING."""
    message = next((one.message for one in status.conditions if one.type == "RESTARTING"), "")
    return common.RunState.Name(status.state).removeprefix("RUN_STATE_"), message


def foreign_member(mesh: Mesh, group: str, topic: str) -> Consumer:
    """A foreign consumer in the sink's group: the task fails (RETRIABLE) for as long as it is there."""
    consumer = Consumer({"bootstrap.servers": mesh.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    deadline_s = time.monotonic() + 60
    while not consumer.assignment():
        assert time.monotonic() < deadline_s, f"no member of {group} after 60 s"
        consumer.poll(0.1)
    return consumer


async def _counted_on_a_page(mesh: Mesh, name: str) -> None:
    """One worker's page has the task, with all its counters; and none has it once the connector is deleted."""
    reads = "kafka_connect_sink_task_metrics_sink_record_read_total"
    found = await until_pages(mesh, name, lambda pages: pages.get(reads) == [50.0], "all records on one page")
    assert found["kafka_connect_connector_task_metrics_status running"] == [1.0]
    assert found["herdmesh_task_behind_records"] == [0.0]
    assert found["herdmesh_task_end_to_end_latency_seconds_count"] == [50.0]
    await _counted_over_starts(mesh, name)
    await mesh.delete(name)
    await until_pages(mesh, name, lambda pages: not pages, "off all pages")


async def _counted_over_starts(mesh: Mesh, name: str) -> None:
    """`herd get connectors` has the records of all starts, while the connector is stopped and in its next start."""
    for rpc, state in (("StopConnector", "STOPPED"), ("ResumeConnector", "RUNNING")):
        await mesh.lifecycle(rpc, name)
        found = await mesh.until(name, partial(_is_settled, state=state), state)
        assert found["counts"] == {"records_in": 50, "records_out": 50, "records_dropped": 0}
    found = await mesh.until(name, lambda one: "progress" in one["tasks"][0], "with a heartbeat's counts")
    assert found["tasks"][0]["progress"]["records_out"] == 50, "the task's own count"


def _is_settled(one: Json, state: str) -> bool:
    units = [one["connector"], *one["tasks"]]
    tasks = 0 if state == "STOPPED" else 1
    return len(one["tasks"]) == tasks and all(unit["state"] == state for unit in units)


async def test_a_task_that_fails_three_times_is_restarted_and_then_runs(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    topic = mesh.create_topic(tmp_topic(), partitions=1)
    name = f"sink-{topic}"
    stranger = await asyncio.to_thread(foreign_member, mesh, f"connect-{name}", topic)
    restarts = {"herdmesh.restart.backoff.ms": "500", "herdmesh.restart.attempts.max": "8"}
    async with statuses_of(mesh, name) as statuses:
        try:
            await mesh.apply(name, parquet_sink(topic, tmp_path / "out", tasks=1, **restarts))

            def waits_for_the_third(one: Json) -> bool:
                for task in one["tasks"]:
                    restart = task.get("auto_restart")
                    if task["state"] == "FAILED" and restart and restart["attempt"] >= 3 and restart["next_time"]:
                        return True
                return False

            shown = await mesh.until(name, waits_for_the_third, "FAILED for the third time")
        finally:
            await asyncio.to_thread(stranger.close)
        task = shown["tasks"][0]
        assert "has live members" in task["error"], "the last error is shown while it waits"
        conditions = {one["type"]: one["message"] for one in task["conditions"]}
        assert WAITS.fullmatch(conditions["RESTARTING"]), conditions
        assert re.search(r"restart \d of 8 follows at ", task["explanation"])
        mesh.produce(topic, range(50))
        shown = await mesh.until_running(name, 1)
        assert shown["tasks"][0]["auto_restart"]["attempt"] >= 3
        assert shown["tasks"][0]["auto_restart"]["next_time"] is None
        await mesh.until_published(tmp_path / "out", 50)
        assert_exact(tmp_path / "out", 50)
        history = [told(status) for status in statuses]
        waiting = [match[1] for state, text in history if state == "FAILED" and (match := WAITS.fullmatch(text))]
        under_way = [text for state, text in history if state == "RESTARTING"]
        assert waiting[:3] == ["1", "2", "3"], history
        assert under_way[:3] == ["1 of 8", "2 of 8", "3 of 8"], history
        assert history[-1] == ("RUNNING", ""), history
        assert all("has live members" in one.trace for one in statuses if told(one)[1]), "the trace stays readable"
        account = next(one.message for one in statuses[-1].conditions if one.type == "RESTARTS")
        assert account.startswith(f"{len(under_way)} restart"), "what the next leader goes on with"
    await _counted_on_a_page(mesh, name)
