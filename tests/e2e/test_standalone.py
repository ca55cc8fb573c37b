"""`herd run` with Connect's own sample files: lines flow from file to topic to file, through a kill -9, and over a
listener that requires a login.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.connect.topics import offsets_file
from herdmesh.rpc.client import connect
from herdmesh.rpc.monitoring import tracing
from tests.support.collector import Collector, collector
from tests.support.guarded_broker import GuardedBroker
from tests.support.standalone import WAIT_S, herd_run, until_lines, write_samples

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]
SOURCE, SINK = "local-file-source", "local-file-sink"
LATER = {
    "name": "later",
    "config": {"connector.class": "FileStreamSource", "file": "none", "topic": "none"},
    "initial_state": "PAUSED",
}
KEY = b'["local-file-source",{"filename":"test.txt"}]'


async def _names(address: str, *, add: bool = False) -> list[str]:
    """The connectors, over the same API as a mesh's; `add` creates one that stays paused."""
    async with connect(address) as channel:
        question = health_pb2.HealthCheckRequest(service="herdmesh.api.herder.v1.ConnectorService")
        stub: Any = health_pb2_grpc.HealthStub(channel)  # its generated stub declares no methods
        assert (await stub.Check(question)).status == health_pb2.HealthCheckResponse.SERVING
    async with HerderClient(address) as client:
        if add:
            config = {"connector.class": "FileStreamSource", "file": "none", "topic": "none"}
            request = messages.CreateConnectorRequest(
                name="extra",
                config=common.Properties(
                    entries={key: common.PropertyValue(text=value) for key, value in config.items()}
                ),
                initial_state=common.TARGET_STATE_PAUSED,
            )
            await client.call(lambda stub: stub.CreateConnector, request)
        reply = await client.call(lambda stub: stub.ListConnectors, messages.ListConnectorsRequest())
        return sorted(one.name for one in reply.connectors)


def _log_in(guarded: GuardedBroker, topic: str, worker: Path) -> None:
    """Put the listener that requires a login into the worker file, with a user that has the rights its connectors
    need.
    """

    async def grant(user: str) -> None:
        await guarded.allow(user, f"topic:{topic}", "READ", "WRITE", "CREATE")
        await guarded.allow(user, f"group:connect-{SINK}", "READ")
        await guarded.allow(user, "transactional_id:*", "WRITE")

    user, login = guarded.new_user()
    asyncio.run(grant(user))
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{plain} required username="{user}" password="{login["sasl.password"]}";'
    text = worker.read_text().replace(guarded.bootstrap, guarded.guarded)
    worker.write_text(f"{text}security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n")


def _one_trace_from_the_call_to_the_batch(exported: Collector, traceparent: str) -> None:
    _, trace, caller, _ = traceparent.split("-")
    # Each process exports its own spans in its own time, of two connectors.
    exported.until("the spans from a batch up to the caller", lambda: _upwards(exported, trace)[-1:] == [caller])
    by_id = {span.id: span for span in exported.spans}
    batch = exported.of_trace(trace)["batch"]
    assert batch.attributes["herdmesh.connector"] in (SOURCE, SINK)
    assert batch.attributes["herdmesh.task"] == 0
    run = by_id[batch.parent]
    assert (run.name, run.attributes["herdmesh.run_id"]) == ("run", batch.attributes["herdmesh.run_id"])
    call = by_id[run.parent]
    assert call.name == "/herdmesh.api.herder.v1.ConnectorService/CreateConnector"
    assert by_id[call.parent].parent == caller, "the client's own span is the call's parent"
    writes = [span for span in exported.spans if span.trace == trace and span.name.endswith("/PutConnectorConfig")]
    assert {by_id[span.parent].id for span in writes} >= {call.id}, "the write is a part of the call"
    lag, counts = "herdmesh_task_behind_records", "kafka_connect_source_task_metrics_source_record_write_total"
    exported.until("metrics of tasks", lambda: {lag, counts} <= exported.metrics)


def _upwards(exported: Collector, trace: str) -> list[str]:
    """The parents of the first batch, as far as they were exported; then the one that was not, or is the caller's."""
    parents = {span.id: span.parent for span in exported.spans if span.trace == trace}
    batch = exported.of_trace(trace).get("batch")
    found = [] if batch is None else [batch.parent]
    while found and found[-1] in parents:
        found.append(parents[found[-1]])
    return found


def _every_line_says_whose_it_is(log: Path) -> None:
    whole, _, _ = log.read_bytes().rpartition(
        b"\n"
    )  # a process that outlives the kill for a moment may be writing another
    lines = [msgspec.json.decode(line) for line in whole.splitlines() if line.startswith(b"{")]
    begun = {one["unit"] for one in lines if one["event"].endswith(" begins")}
    assert begun == {f"[{SOURCE}|task-0]", f"[{SINK}|task-0]"}
    assert {f"[{SOURCE}|worker]", f"[{SINK}|worker]"} <= {one.get("unit") for one in lines}
    assert not [one for one in lines if one.get("logger", "").startswith("librdkafka.") and "unit" not in one]
    assert not [line for line in log.read_text().splitlines() if line.startswith("%")], "librdkafka's own form"


def test_connects_samples_run_and_continue_after_a_kill(
    guarded: GuardedBroker, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = tmp_topic()
    files = write_samples(tmp_path, guarded.bootstrap, topic)
    source, sink, offsets = tmp_path / "test.txt", tmp_path / "test.sink.txt", tmp_path / "connect.offsets"
    source.write_text("".join(f"line {number}\n" for number in range(100)))
    traceparent = tracing.new_traceparent()
    traced = {"TRACEPARENT": traceparent, "OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
    traced["HERDMESH_LOG_LEVEL"] = "info"
    with (
        collector() as exported,
        herd_run(tmp_path, files, **traced, OTEL_EXPORTER_OTLP_ENDPOINT=exported.endpoint) as first,
    ):
        first.until_running(SOURCE, SINK)
        until_lines(sink, 100)
        _one_trace_from_the_call_to_the_batch(exported, traceparent)
        with source.open("a") as more:
            more.writelines(f"line {number}\n" for number in range(100, 200))
        until_lines(sink, 200)
        assert asyncio.run(_names(first.address, add=True)) == ["extra", SINK, SOURCE]
        first.kill()
    _every_line_says_whose_it_is(tmp_path / "run.log")
    with source.open("a") as more:
        more.writelines(f"line {number}\n" for number in range(200, 300))
    _log_in(guarded, topic, tmp_path / files[0])
    (tmp_path / "later.json").write_bytes(msgspec.json.encode(LATER))
    more = [*files, "later.json"]
    with herd_run(tmp_path, more, HERDMESH_LINGER_MS="100", HERDMESH_WARM_RUNS_MAX="0") as second:
        second.until_running(SOURCE, SINK)
        with herd_run(tmp_path, files[:1]) as third:  # it starts while the second is being checked
            later = {"event": "connector", "name": LATER["name"], "state": "PAUSED", "tasks": list[str]()}
            second.until("paused, as its file says", lambda said: later in said)
            lines = until_lines(sink, 300)
            assert asyncio.run(_names(second.address)) == ["later", SINK, SOURCE], "nothing but offsets survives"
            assert third.process.wait(WAIT_S) == 1
            # It may have ended before that was read here. A note about dead letter queues comes first.
            third.until("said to be refused", lambda said: any("error" in one for one in said))
            refused = third.said[-1]
            assert "connect.offsets is in use by another process" in refused["error"]["message"]
        # By now both are idle: the watch for new records logs in too.
        with source.open("a") as more:
            more.writelines(f"line {number}\n" for number in range(300, 310))
        while "line 309" not in lines:
            lines = until_lines(sink, len(lines) + 1)
        assert second.interrupt() == 0
        second.until("stopped", lambda said: said[-1:] == [{"event": "stopped"}])
    assert sorted(set(lines)) == sorted(f"line {number}" for number in range(310)), "nothing is lost"
    stored = offsets_file.decode(offsets.read_bytes())
    assert stored == {KEY: b'{"position":%d}' % source.stat().st_size}
    # It continued from the file's offset: the second run did not begin from the start.
    assert len(lines) < 600
