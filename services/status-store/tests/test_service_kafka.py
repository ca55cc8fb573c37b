"""Tests of the status store as a process over a real broker: acknowledged writes survive kill -9."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as write_pb2
from tests.support.statusstore_memory import W1, put
from tests.support.statusstore_process import StatusStoreProcess
from tests.support.store_process import SHORT_SESSION

pytestmark = pytest.mark.kafka


async def test_acknowledged_statuses_survive_kill_9(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    store = StatusStoreProcess(kafka_bootstrap, tmp_topic("status"), tmp_path / "store.log", more=SHORT_SESSION)
    await store.start()
    await store.until_writing()
    request = write_pb2.PutStatusesRequest(writer=W1, puts=[put("c", task) for task in range(20)])
    reply = await store.write.PutStatuses(request, timeout=20)
    assert {outcome.result for outcome in reply.outcomes} == {write_pb2.PUT_RESULT_APPLIED}
    before = await store.read.GetStatus(read_pb2.GetStatusRequest(connector="c"), timeout=10)
    await store.kill()

    await store.start()
    try:
        await store.until_writing()
        demanded = read_pb2.GetStatusRequest(connector="c", at_least=reply.meta.revision)
        after = await store.read.GetStatus(demanded, timeout=20)
        assert list(after.tasks) == list(before.tasks)
        assert len(after.tasks) == 20
        # No worker has sent a heartbeat to the new writer yet: it granted one full lease.
        assert {task.effective_state for task in after.tasks} == {connector_pb2.RUN_STATE_RUNNING}
        assert await store.stop() == 0
    finally:
        await store.kill()
