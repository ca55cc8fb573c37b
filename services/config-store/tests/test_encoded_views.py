"""Tests of encoded views: snapshots and watches are encoded once for all callers and equal the stored state."""

from __future__ import annotations

from typing import cast

from herdmesh.api.configstore.v1 import config_read_service_pb2 as pb
from herdmesh.configstore.service import wire
from herdmesh.configstore.service.read import ConfigReadServicer
from tests.support.configstore_replica import Replica


async def _snapshot(servicer: ConfigReadServicer) -> pb.GetSnapshotResponse:
    return pb.GetSnapshotResponse.FromString(
        cast(bytes, await servicer.GetSnapshot(pb.GetSnapshotRequest(), cast("object", None)))  # pyright: ignore[reportArgumentType]
    )


async def _watched(servicer: ConfigReadServicer) -> list[str]:
    names: list[str] = []
    async for event in servicer.Watch(pb.WatchRequest(), cast("object", None)):  # pyright: ignore[reportArgumentType]
        sent = cast("object", event)
        if not isinstance(sent, bytes):
            break  # the end of the snapshot
        names.append(pb.WatchResponse.FromString(sent).connector_changed.name)
    return names


async def test_more_readers_cause_no_more_encoding(writer: Replica) -> None:
    names = [f"c{number:02}" for number in range(20)]
    for name in names:
        await writer.put(name, {"name": name})
    await writer.epoch()
    servicer = ConfigReadServicer(writer.store)
    state, revision = writer.store.state, writer.store.revision
    first = await _snapshot(servicer)
    assert first.connectors == [wire.entry(one, revision.store_id) for one in wire.chosen(state, ())]
    assert first.meta.HasField("revision")
    assert first.leadership.epoch
    assert await _watched(servicer) == names
    made = servicer.views.made_count
    assert made == 2 * len(names)
    for _ in range(50):
        assert await _snapshot(servicer) == first
        assert await _watched(servicer) == names
    assert servicer.views.made_count == made
    await writer.put("c03", {"name": "c03", "note": "new"})
    assert (await _snapshot(servicer)).connectors[3].config.entries["note"].text == "new"
    assert servicer.views.made_count == made + 1, "what changed, and nothing else"


async def test_a_connector_that_changes_often_has_one_cached_view(writer: Replica) -> None:
    servicer = ConfigReadServicer(writer.store)
    for number in range(50):
        await writer.put("c", {"name": "c", "note": str(number)})
        await _snapshot(servicer)
    assert len(servicer.views) == 1
