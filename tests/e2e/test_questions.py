"""Commands of the herder to its workers, on a real mesh: a plan that comes true, initial offsets, loggers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import offset_messages_pb2 as offsets
from herdmesh.cli.errors import CommandError
from herdmesh.rpc import properties
from tests.support.mesh import Mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]


async def test_a_source_is_planned_and_begins_at_its_initial_offset(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    file, topic = tmp_path / "in.txt", mesh.create_topic(tmp_topic(), partitions=1)
    file.write_text("first\nsecond\nthird\n")
    name, config = (
        f"src-{topic}",
        {
            "connector.class": "FileStreamSource", "file": str(file), "topic": topic,
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        },
    )  # fmt: skip
    plan = messages.PlanConfigRequest(name=name, config=properties.to_proto(dict(config)))
    planned = await mesh.client.call(lambda stub: stub.PlanConfig, plan)
    assert [step.action for step in planned.steps] == [messages.PLAN_ACTION_START] * 2
    assert planned.validation.error_count == 0

    create = messages.CreateConnectorRequest(name=name, config=plan.config, request_id=f"create-{name}")
    wrong = offsets.OffsetEntry(partition_json=f'{{"filename":"{file}"}}', offset_json='{"position":-1}')
    create.initial_offsets.append(wrong)
    with pytest.raises(CommandError, match="should be a non-negative value"):
        await mesh.client.call(lambda stub: stub.CreateConnector, create)
    create.initial_offsets[0].offset_json = '{"position":6}'
    await mesh.client.call(lambda stub: stub.CreateConnector, create)
    await mesh.until_running(name, 1)
    assert await asyncio.to_thread(mesh.consume_values, topic, 2) == [b"second", b"third"]

    planned = await mesh.client.call(lambda stub: stub.PlanConfig, plan)
    assert [step.action for step in planned.steps] == [messages.PLAN_ACTION_KEEP] * 2


async def test_a_log_level_of_the_cluster_is_in_force_on_every_worker(mesh: Mesh) -> None:
    told = await mesh.client.call(lambda stub: stub.ListWorkers, admin.ListWorkersRequest())
    workers = {worker.worker_id for worker in told.workers}
    request = admin.SetLoggersRequest(logger="herdmesh.test.e2e", level="debug")
    reply = await mesh.client.call(lambda stub: stub.SetLoggers, request)
    assert reply.affected == ["herdmesh.test.e2e"]
    listed = await mesh.client.call(lambda stub: stub.GetLoggers, admin.GetLoggersRequest(logger="herdmesh.test.e2e"))
    assert {entry.worker_id: entry.level for entry in listed.loggers} == dict.fromkeys(workers, "DEBUG")
