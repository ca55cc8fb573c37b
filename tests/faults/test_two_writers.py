"""Two config stores on one topic: the writer is stopped, the other takes over and writes, the first is continued.

Requests that arrived while it was stopped are in its sockets when it wakes up believing that it is the writer. None
of them may be decided on its old state: writes are refused by the fence, refusals and reads checked again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from herdmesh.api.configstore.v1 import config_read_service_pb2 as read_pb
from herdmesh.api.configstore.v1 import config_write_service_pb2 as write_pb
from herdmesh.rpc.errors import ConnectorExists, ConnectorNotFound, HerdmeshError, NotWriter, WriterFenced
from tests.support.configstore_process import ConfigStoreProcess
from tests.support.side_by_side import SideBySideTest
from tests.support.store_process import SHORT_SESSION
from tests.support.waiting import of_stores

pytestmark = pytest.mark.kafka


@asynccontextmanager
async def _two_stores(bootstrap: str, topic: str, folder: Path) -> AsyncGenerator[list[ConfigStoreProcess]]:
    """A writer and a replica of it."""
    made = [
        ConfigStoreProcess(bootstrap, topic, folder / f"store-{number}.log", more=SHORT_SESSION) for number in (1, 2)
    ]
    try:
        await made[0].start()
        await made[0].until_writing()
        await made[1].start()
        await made[1].until_reading()
        yield made
    finally:
        for store in made:
            store.signal(signal.SIGCONT)
            await store.kill()


def _stores(test: SideBySideTest) -> AbstractAsyncContextManager[list[ConfigStoreProcess]]:
    return _two_stores(test.fixture("kafka_bootstrap"), test.topic("configs"), test.folder())


together = of_stores.making("kafka_bootstrap", stores=_stores)


@together
async def test_a_stopped_and_continued_writer_answers_only_from_current_state(stores: list[ConfigStoreProcess]) -> None:
    first, second = stores
    await first.put("old", {"by": "first"})
    await first.put("kept", {"by": "first"})
    first.signal(signal.SIGSTOP)

    asked = {
        "a write": first.put("late", {"by": "first"}),
        "a create that is too late": first.put("new", {"by": "first"}, must_not_exist=True),
        "an update over what it remembers": first.put("kept", {"by": "first, late"}, must_exist=True),
        "a refusal: exists no more": first.put("old", {"by": "first"}, must_not_exist=True),
        "a refusal: exists by now": first.put("new", {"by": "first, late"}, must_exist=True),
    }
    writes = {what: asyncio.create_task(call) for what, call in asked.items()}
    read = asyncio.create_task(first.configs())

    await second.until_writing()
    await second.put("new", {"by": "second"}, must_not_exist=True)
    await second.put("kept", {"by": "second"})
    await second.write.DeleteConnector(write_pb.DeleteConnectorRequest(connector="old"))
    expected = {"new": {"by": "second"}, "kept": {"by": "second"}}

    first.signal(signal.SIGCONT)
    answers = dict(zip(writes, await asyncio.gather(*writes.values(), return_exceptions=True), strict=True))
    for what, answer in answers.items():
        assert isinstance(answer, HerdmeshError), f"{what}: the deposed writer acknowledged {answer}"
        if what == "a create that is too late" and isinstance(answer, ConnectorExists):
            continue  # it read of the other's before it came to this one: a refusal that was checked, and true
        assert not isinstance(answer, ConnectorExists | ConnectorNotFound), f"{what}: refused from stale state"
        assert isinstance(answer, NotWriter | WriterFenced), f"{what}: {answer!r}"
    assert await read == expected

    await first.until_not_writing()
    assert await second.configs() == expected
    assert await first.configs() == expected
    written = await second.put("after", {"by": "second"})
    snapshot = await first.read.GetSnapshot(read_pb.GetSnapshotRequest(at_least=written.meta.revision))
    assert [entry.name for entry in snapshot.connectors] == ["after", "kept", "new"]
    assert not any(entry.foreign for entry in snapshot.connectors)
