"""Every error, from a real server to a real client over a socket: class, reason, metadata and violations survive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from herdmesh.api.common.v1 import error_pb2
from herdmesh.api.configstore.v1 import leadership_service_pb2 as leadership_pb2
from herdmesh.api.configstore.v1 import leadership_service_pb2_grpc as leadership_grpc
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2_grpc as read_grpc
from herdmesh.rpc import errors, revisions, status
from herdmesh.rpc.client import connect
from herdmesh.rpc.server import Server, ServiceRegistration
from herdmesh.topicstore import errors as store_errors
from herdmesh.topicstore.contract import Revision, StoreRole

READ = "herdmesh.api.statusstore.v1.StatusReadService"
LEADERSHIP = "herdmesh.api.configstore.v1.LeadershipService"

SAMPLES: Sequence[errors.HerdmeshError] = (
    errors.InvalidConfig([errors.FieldViolation("tasks.max", "must be 1 or more"), errors.FieldViolation("file", "é")]),
    errors.RequestInvalid("the name is empty", "name"),
    errors.ConnectorNotFound("flights"),
    errors.TaskNotFound("flights", 3),
    errors.WorkerNotFound("127.0.0.1:7204"),
    errors.LeaseNotFound("127.0.0.1:7204"),
    errors.PluginNotFound("NoSuch", ["FileStreamSink"]),
    errors.HistoryNotFound("flights", "abc@7", "it was deleted there"),
    errors.LoggerNotFound("org.example"),
    errors.StatusNotFound("flights"),
    errors.TopicTrackingDisabled("topic.tracking.enable"),
    errors.OffsetsRefused("flights", "it has no partition 7"),
    errors.DeadLettersRefused("flights", "it has no dead letter queue"),
    errors.ConnectorExists("flights"),
    errors.ConnectorNotStopped("flights"),
    errors.Superseded("generation 4 is over"),
    errors.StaleEpoch("epoch 4 is over"),
    errors.StatusNewer("newer"),
    errors.NotLeader("127.0.0.1:7203"),
    errors.RevisionMismatch("abc@1,2"),
    errors.WriteOutcomeUnknown("the commit timed out"),
    errors.RevisionCompacted("too old"),
    errors.RevisionInFuture("too new"),
    errors.RevisionForeign("another store"),
    errors.StoreReplaying("still reading"),
    errors.NotWriter("a replica"),
    errors.WriterFenced("fenced"),
    errors.NoLeader("none"),
    errors.NoWorker("none"),
    errors.ShuttingDown("bye"),
    errors.TopicRecreated("made anew"),
    errors.StoreUnauthorized("write to", "topic connect-configs"),
    errors.Unreachable("the config store does not answer"),
    errors.WatchOverflow("slow", {"last_revision": "abc@1"}),
    errors.QueueFull("full"),
    errors.Timeout("writing"),
    errors.RecordCorrupt("offset 7"),
    errors.NotBuilt("GetHistory"),
    errors.Internal("c0ffee"),
    errors.ForeignWriter(["worker-1", "worker-2"]),
    errors.RequestIdExpired("r1"),
    errors.RequestIdUnknown("r1"),
)

Behaviour = Callable[[], Awaitable[object]]


class _Read(read_grpc.StatusReadServiceServicer):
    """Fails with the configured error; WatchLeases fails after one reply. All other methods are the generated base
    methods.
    """

    def __init__(self) -> None:
        self.behaviour: Behaviour | None = None
        self.watch_closed = asyncio.Event()

    async def GetStatus(self, request: Any, context: Any) -> read_pb2.GetStatusResponse:
        if self.behaviour is not None:
            await self.behaviour()
        return read_pb2.GetStatusResponse()

    async def WatchLeases(self, request: Any, context: Any) -> AsyncGenerator[read_pb2.WatchLeasesResponse]:
        try:
            yield read_pb2.WatchLeasesResponse()
            if self.behaviour is not None:
                await self.behaviour()
        finally:
            self.watch_closed.set()


class _Leadership(leadership_grpc.LeadershipServiceServicer):
    """Campaign answers each request, and fails at the third."""

    async def Campaign(
        self, request_iterator: AsyncIterator[leadership_pb2.CampaignRequest], context: Any
    ) -> AsyncGenerator[leadership_pb2.CampaignResponse]:
        count = 0
        async for _ in request_iterator:
            count += 1
            if count == 3:
                raise errors.StaleEpoch("epoch 2 is over")
            yield leadership_pb2.CampaignResponse()


@pytest.fixture
async def servicer() -> _Read:
    return _Read()  # pyright: ignore[reportAbstractUsage] - unimplemented methods are part of the test


@pytest.fixture
async def channel(servicer: _Read) -> AsyncIterator[grpc.aio.Channel]:
    leadership = _Leadership()  # pyright: ignore[reportAbstractUsage]
    server = Server(
        "127.0.0.1:0",
        [
            ServiceRegistration(servicer, read_grpc.add_StatusReadServiceServicer_to_server, READ),
            ServiceRegistration(leadership, leadership_grpc.add_LeadershipServiceServicer_to_server, LEADERSHIP),
        ],
        metrics=False,
    )
    port = await server.start()
    async with connect(f"127.0.0.1:{port}") as opened:
        yield opened
    await server.stop(0)


def _raising(error: BaseException) -> Behaviour:
    async def behaviour() -> None:
        raise error

    return behaviour


def test_every_reason_has_one_class_and_one_code() -> None:
    prefix = "ERROR_REASON_"
    values = error_pb2.DESCRIPTOR.enum_types_by_name["ErrorReason"].values
    reasons = {value.name.removeprefix(prefix) for value in values} - {"UNSPECIFIED"}
    assert sorted(error_class.reason for error_class in status.CODES) == sorted(reasons)
    assert {type(sample) for sample in SAMPLES} == set(status.CODES)


def test_status_codes_equal_those_of_the_proto_comments() -> None:
    # The comment of each enum value starts "ERROR_REASON_X (CODE):".
    root = next(parent for parent in Path(__file__).parents if (parent / "protos").is_dir())
    text = (root / "protos/herdmesh/api/common/v1/error.proto").read_text()
    for error_class, code in status.CODES.items():
        assert f"ERROR_REASON_{error_class.reason} ({code.name}):" in text


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
async def test_every_error_survives_the_round_trip(
    sample: errors.HerdmeshError, servicer: _Read, channel: grpc.aio.Channel
) -> None:
    servicer.behaviour = _raising(sample)
    with pytest.raises(errors.HerdmeshError) as caught:
        await read_grpc.StatusReadServiceStub(channel).GetStatus(read_pb2.GetStatusRequest())
    assert type(caught.value) is type(sample)
    assert caught.value.message == sample.message
    assert caught.value.metadata == sample.metadata
    assert caught.value.violations == sample.violations


REVISION = Revision("store", (3, 4))


@pytest.mark.parametrize(
    ("raised", "received"),
    [
        (store_errors.StoreReplaying(), errors.StoreReplaying),
        (store_errors.NotWriter(StoreRole.REPLICA), errors.NotWriter),
        (store_errors.WriterFenced("by another"), errors.WriterFenced),
        (store_errors.QueueFull(5), errors.QueueFull),
        (store_errors.StoreClosed(), errors.ShuttingDown),
        (store_errors.TopicRecreated("t", "a", None), errors.TopicRecreated),
        (store_errors.NotAuthorized("write to", "topic t", "grant it"), errors.StoreUnauthorized),
        (store_errors.WriteOutcomeUnknown("timeout"), errors.WriteOutcomeUnknown),
        (store_errors.RevisionForeign(REVISION, "other"), errors.RevisionForeign),
        (store_errors.RevisionCompacted(REVISION, REVISION), errors.RevisionCompacted),
        (store_errors.RevisionInFuture(REVISION, REVISION), errors.RevisionInFuture),
        (store_errors.WatchOverflow(REVISION, 9), errors.WatchOverflow),
        (TimeoutError(), errors.Timeout),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
async def test_errors_of_other_libraries_are_mapped(
    raised: Exception, received: type[errors.HerdmeshError], servicer: _Read, channel: grpc.aio.Channel
) -> None:
    servicer.behaviour = _raising(raised)
    with pytest.raises(received) as caught:
        await read_grpc.StatusReadServiceStub(channel).GetStatus(read_pb2.GetStatusRequest())
    if isinstance(raised, store_errors.WatchOverflow):
        assert revisions.from_text(caught.value.metadata["last_revision"]) == REVISION
    if isinstance(raised, store_errors.NotAuthorized):
        assert caught.value.metadata == {"operation": "write to", "resource": "topic t"}


async def test_a_bug_is_reported_by_a_correlation_id_only(servicer: _Read, channel: grpc.aio.Channel) -> None:
    servicer.behaviour = _raising(ZeroDivisionError("secret"))
    with pytest.raises(errors.Internal) as caught:
        await read_grpc.StatusReadServiceStub(channel).GetStatus(read_pb2.GetStatusRequest())
    assert caught.value.correlation_id
    assert "secret" not in caught.value.message


async def test_unimplemented_methods_answer_unimplemented(channel: grpc.aio.Channel) -> None:
    stub = read_grpc.StatusReadServiceStub(channel)
    with pytest.raises(errors.NotBuilt, match=r"StatusReadService/ListTopics is part of the contract but not built"):
        await stub.ListTopics(read_pb2.ListTopicsRequest())
    with pytest.raises(errors.NotBuilt, match="WatchStatuses"):
        await anext(aiter(stub.WatchStatuses(read_pb2.WatchStatusesRequest())))


async def test_a_stream_that_fails_after_replies(servicer: _Read, channel: grpc.aio.Channel) -> None:
    servicer.behaviour = _raising(store_errors.WatchOverflow(REVISION, 9))
    replies = aiter(read_grpc.StatusReadServiceStub(channel).WatchLeases(read_pb2.WatchLeasesRequest()))
    await anext(replies)
    with pytest.raises(errors.WatchOverflow):
        await anext(replies)


async def test_a_bidirectional_stream_that_fails(channel: grpc.aio.Channel) -> None:
    call = leadership_grpc.LeadershipServiceStub(channel).Campaign()
    for _ in range(2):
        await call.write(leadership_pb2.CampaignRequest())
        assert isinstance(await call.read(), leadership_pb2.CampaignResponse)
    await call.write(leadership_pb2.CampaignRequest())
    with pytest.raises(errors.StaleEpoch, match="epoch 2 is over"):
        await call.read()


async def test_a_watch_is_closed_when_its_caller_leaves(servicer: _Read, channel: grpc.aio.Channel) -> None:
    servicer.behaviour = asyncio.Event().wait
    call = read_grpc.StatusReadServiceStub(channel).WatchLeases(read_pb2.WatchLeasesRequest())
    await anext(aiter(call))
    call.cancel()
    await asyncio.wait_for(servicer.watch_closed.wait(), 60)


async def test_an_expired_deadline_is_a_timeout(servicer: _Read, channel: grpc.aio.Channel) -> None:
    servicer.behaviour = asyncio.Event().wait
    with pytest.raises(errors.Timeout):
        await read_grpc.StatusReadServiceStub(channel).GetStatus(read_pb2.GetStatusRequest(), timeout=0.05)


async def test_a_missing_server_is_unreachable() -> None:
    async with connect("127.0.0.1:1") as nobody:
        with pytest.raises(errors.Unreachable):
            await read_grpc.StatusReadServiceStub(nobody).GetStatus(read_pb2.GetStatusRequest(), timeout=30)


def test_oversized_errors_are_cut_to_fit() -> None:
    error = errors.InvalidConfig([errors.FieldViolation(f"field.{number}", "x" * 50) for number in range(1000)])
    _, message, details = status.pack(error)
    assert len(message) + len(details) < 8192
