"""Batches of the herder over real gRPC: each config is validated once, all before the first write; bounds, stops and
callers who leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import pytest

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import batch_messages_pb2 as batch_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.cli.batch.sending import ChangeBatch, send
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.herder.service import batches
from herdmesh.rpc import errors, properties, status
from herdmesh.rpc.client import retrying
from tests.integration.test_herder_service import WAIT_S, Mesh, create, until_workers
from tests.support.session_worker import SessionWorker
from tests.support.side_by_side import SideBySide, SideBySideTest

if TYPE_CHECKING:
    from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceAsyncStub

    Parts: TypeAlias = "tuple[Mesh, ConnectorServiceAsyncStub, SessionWorker]"

Responses = list[batch_pb.ChangeConnectorsResponse]


@asynccontextmanager
async def _mesh(_test: SideBySideTest) -> AsyncGenerator[tuple[Mesh, ConnectorServiceAsyncStub, SessionWorker]]:
    made = Mesh()
    await made.start()
    try:
        await made.start_herder(made.herder)
        async with made.client() as client, made.worker("w1") as worker:
            await until_workers(client, 1)
            yield made, client, worker
    finally:
        await made.close()


together = SideBySide(mesh=_mesh, at_once=4)


def _creates(names: Sequence[str], **more: str) -> batch_pb.ChangeConnectorsRequest:
    changes = [batch_pb.ConnectorChange(create=create(name, 1, **more)) for name in names]
    return batch_pb.ChangeConnectorsRequest(changes=batch_pb.ConnectorChanges(changes=changes))


def _update(name: str, **more: str) -> batch_pb.ConnectorChange:
    config = {"connector.class": "TestSink", "tasks.max": "1", **more}
    request = pb.UpdateConnectorRequest(
        name=name, config=properties.to_proto(config), request_id=f"update-{name}", allow_missing=True
    )
    return batch_pb.ConnectorChange(update=request)


def _changes(*changes: batch_pb.ConnectorChange) -> batch_pb.ChangeConnectorsRequest:
    return batch_pb.ChangeConnectorsRequest(changes=batch_pb.ConnectorChanges(changes=changes))


def _begin(*, keep_going: bool = False, validate_only: bool = False) -> batch_pb.ChangeConnectorsRequest:
    return batch_pb.ChangeConnectorsRequest(
        begin=batch_pb.BeginChanges(keep_going=keep_going, validate_only=validate_only)
    )


async def _sent(client: ConnectorServiceAsyncStub, *parts: batch_pb.ChangeConnectorsRequest) -> Responses:
    async def requests() -> AsyncIterator[batch_pb.ChangeConnectorsRequest]:
        for part in parts:
            yield part

    async def once() -> Responses:
        return [response async for response in client.ChangeConnectors(requests())]

    return await retrying(once, WAIT_S)


async def _names(client: ConnectorServiceAsyncStub) -> list[str]:
    return [one.name for one in (await client.ListConnectors(pb.ListConnectorsRequest())).connectors]


def _outcomes(responses: Responses) -> dict[int, str | None]:
    return {one.number: one.WhichOneof("outcome") for one in responses if not one.HasField("checked")}


@together
async def test_every_config_is_validated_once_and_before_the_first_write(mesh: Parts) -> None:
    _, client, worker = mesh
    made = await _sent(client, _creates([f"c{number}" for number in range(100)]), _begin())
    kinds = [one.WhichOneof("outcome") for one in made]
    assert kinds == ["checked"] * 100 + ["created"] * 100
    assert sorted(worker.validated) == sorted(f"c{number}" for number in range(100))
    gone = batch_pb.ConnectorChange(delete=pb.DeleteConnectorRequest(name="c1", request_id="d"))
    missing = batch_pb.ConnectorChange(delete=pb.DeleteConnectorRequest(name="none", request_id="e"))
    more = await _sent(client, _changes(_update("c0"), gone), _changes(_update("c2", note="x"), missing), _begin())
    assert _outcomes(more) == {0: "updated", 1: "deleted", 2: "updated", 3: "failure"}
    assert [one.updated.unchanged for one in sorted(more, key=lambda one: one.number) if one.HasField("updated")] == [
        True,
        False,
    ]
    (failure,) = [one.failure for one in more if one.HasField("failure")]
    assert isinstance(status.from_details(failure.status), errors.ConnectorNotFound)
    assert len(worker.validated) == 102
    assert len(await _names(client)) == 99


@together
async def test_a_batch_that_is_sent_again_gets_its_first_outcomes(mesh: Parts) -> None:
    _, client, _ = mesh
    for _ in range(2):
        assert _outcomes(await _sent(client, _creates(["a", "b"]), _begin())) == {0: "created", 1: "created"}


@together
async def test_an_invalid_config_prevents_all_unless_the_batch_keeps_going(mesh: Parts) -> None:
    _, client, _ = mesh
    parts = (_creates(["a"]), _creates(["b"], wrong="yes"), _creates(["c\nx"]), _creates(["d"]))
    for begin in (_begin(), _begin(keep_going=True, validate_only=True)):
        refused = await _sent(client, *parts, begin)
        assert _outcomes(refused) == {1: "failure", 2: "failure"}
        found = {one.number: status.from_details(one.failure.status) for one in refused if one.HasField("failure")}
        assert {number: [one.field for one in error.violations] for number, error in found.items() if error} == {
            1: ["wrong"],
            2: ["name"],
        }
        assert await _names(client) == []
    kept = await _sent(client, *parts, _begin(keep_going=True))
    assert _outcomes(kept) == {0: "created", 1: "failure", 2: "failure", 3: "created"}
    assert await _names(client) == ["a", "d"]


@together
async def test_after_a_stop_nothing_is_begun_and_what_was_begun_has_an_outcome(mesh: Parts) -> None:
    _, client, worker = mesh
    worker.may_validate.clear()
    stop = asyncio.Event()

    async def requests() -> AsyncIterator[batch_pb.ChangeConnectorsRequest]:
        yield _creates([f"c{number}" for number in range(batches.CHECKS_AT_ONCE + 20)])
        yield _begin()
        await stop.wait()
        yield batch_pb.ChangeConnectorsRequest(stop=batch_pb.StopChanges())

    async with asyncio.timeout(WAIT_S):
        told = client.ChangeConnectors(requests())
        while not worker.validated:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        stop.set()
        await client.GetCluster(admin_pb.GetClusterRequest())  # over the same connection, so behind the stop
        worker.may_validate.set()
        responses = [response async for response in told]
    assert [one.WhichOneof("outcome") for one in responses] == ["checked"] * batches.CHECKS_AT_ONCE
    assert await _names(client) == []


async def test_the_command_leaves_no_task_behind() -> None:
    made = Mesh()
    await made.start()
    try:
        await made.start_herder(made.herder)
        async with made.client() as client, made.worker("w1"), HerderClient(made.herder) as herder:
            await until_workers(client, 1)
            before = asyncio.all_tasks()
            batch = ChangeBatch(
                ["a", "b"], change_of=lambda name: create(name, 1), result_of=lambda name, _: name, verb="created"
            )
            assert (await send(herder, batch)).results == ["a", "b"]
            for _ in range(5):
                await asyncio.sleep(0)
            left = [str(task.get_coro()) for task in asyncio.all_tasks() - before]
            # gRPC's reader of the parts would be destroyed in the middle, with two traces on standard error
            assert not [one for one in left if "_consume_request_iterator" in one or "Event.wait" in one]
    finally:
        await made.close()


@together
async def test_a_caller_who_leaves_stops_the_batch(mesh: Parts) -> None:
    _, client, worker = mesh
    worker.may_validate.clear()

    async def requests() -> AsyncIterator[batch_pb.ChangeConnectorsRequest]:
        yield _creates([f"left{number}" for number in range(600)])
        yield _begin()
        await asyncio.Event().wait()

    told = client.ChangeConnectors(requests())
    reading = asyncio.ensure_future(anext(aiter(told)))
    async with asyncio.timeout(WAIT_S):
        while not worker.validated:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        while any("BatchRpcs._carry_out" in str(task.get_coro()) for task in asyncio.all_tasks()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    worker.may_validate.set()
    assert await _names(client) == []


@together
async def test_a_malformed_batch_is_refused_before_anything_is_done(mesh: Parts) -> None:
    _, client, worker = mesh
    for parts, says in (
        ((_creates(["a"]), _creates(["a"]), _begin()), "connector a has two changes"),
        ((_creates(["a"]),), "ended without begin"),
        ((batch_pb.ChangeConnectorsRequest(stop=batch_pb.StopChanges()),), "its changes first, then begin"),
        ((_changes(batch_pb.ConnectorChange()), _begin()), "a change is empty"),
        ((_creates([f"c{one}" for one in range(batches.CHANGES_MAX + 1)]), _begin()), "at most 10000 changes"),
    ):
        with pytest.raises(errors.RequestInvalid, match=says):
            await _sent(client, *parts)
    assert worker.validated == []
    assert await _sent(client, _begin()) == []
